// SPDX-License-Identifier: Apache-2.0
// Runs the network.so of the README from C++ with TVM's two runtime libraries.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace ffi = tvm::ffi;

struct Aligned {  // Kernels expect tensors at multiples of 64 bytes.
  void AllocData(DLTensor* tensor) {
    tensor->data = std::aligned_alloc(64, (ffi::GetDataSize(*tensor) + 63) / 64 * 64);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

int main() {
  ffi::Module library = ffi::Module::LoadFromFile("./network.so");
  ffi::Module machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  const int pooled = 2;  // tvm::runtime::memory::AllocatorType::kPooled
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, pooled);

  ffi::Tensor image = ffi::Tensor::FromNDAlloc(Aligned(), {1, 784}, {kDLFloat, 32, 1}, {kDLCPU, 0});
  std::fill_n(static_cast<float*>(image.data_ptr()), image.numel(), 1.0f);
  // A model with several outputs returns a tvm::ffi::Array<Tensor>.
  ffi::Tensor scores = machine->GetFunction("main").value()(image).cast<ffi::Tensor>();
  std::printf("%g\n", static_cast<float*>(scores.data_ptr())[0]);
}
