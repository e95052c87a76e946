// SPDX-License-Identifier: Apache-2.0
// Runs model.so once on zeros: ./main 1x3x224x224 ..., a shape of float32 for each input.
#include "droplet_model.h"

#include <cstdio>

int main(int count, char** shapes) {
  try {
    droplet::Model model("./model.so");
    std::vector<droplet::Tensor> inputs;
    for (int i = 1; i < count; ++i) {
      std::vector<int64_t> shape;
      std::istringstream text(shapes[i]);
      for (std::string extent; std::getline(text, extent, 'x');) shape.push_back(std::stoll(extent));
      inputs.push_back(droplet::Zeros(shape));
    }
    for (const droplet::Tensor& output : model.Run(inputs)) {
      std::printf("%lld numbers, the first is %g\n", static_cast<long long>(output.numel()),
                  static_cast<const float*>(output.data_ptr())[0]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
