// SPDX-License-Identifier: Apache-2.0
// A tuned model in C++: loads the library, checks the CPU, runs its functions.
#ifndef DROPLET_MODEL_H_
#define DROPLET_MODEL_H_

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace droplet {

using tvm::ffi::Tensor;

namespace detail {

struct Aligned {  // Kernels expect tensors at multiples of 64 bytes.
  void AllocData(DLTensor* tensor) {
    size_t size = (tvm::ffi::GetDataSize(*tensor) + 63) / 64 * 64;
    tensor->data = std::aligned_alloc(64, size == 0 ? 64 : size);
    std::memset(tensor->data, 0, size);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

// The JSON text behind the end of the library; empty if there is none.
inline std::string Description(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error(path + " cannot be read: expected the library of a tuned model");
  int64_t size = file.tellg();
  uint64_t length = 0;
  char mark[8] = {};
  if (size < 16) return "";
  file.seekg(size - 16);
  file.read(reinterpret_cast<char*>(&length), 8);
  file.read(mark, 8);
  if (std::memcmp(mark, "droplet1", 8) != 0 || length > static_cast<uint64_t>(size - 16)) return "";
  std::string text(length, '\0');
  file.seekg(size - 16 - static_cast<int64_t>(length));
  file.read(&text[0], static_cast<std::streamsize>(length));
  return text;
}

// The flag that the library needs and this CPU lacks; empty if there is none.
inline std::string MissingFlag(const std::string& description) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (std::getline(file, line)) {
    if (line.compare(0, 5, "flags") == 0) {
      flags = line.substr(line.find(':') + 1) + " ";
      break;
    }
  }
  const std::string key = "\"cpu_flags\":[";
  size_t at = description.find(key);
  if (flags.empty() || at == std::string::npos) return "";
  at += key.size();
  std::istringstream names(description.substr(at, description.find(']', at) - at));
  for (std::string name; std::getline(names, name, ',');) {
    name = name.substr(1, name.size() - 2);  // Without its quotation marks.
    if (flags.find(" " + name + " ") == std::string::npos) return name;
  }
  return "";
}

// The number after a key of the description; empty if there is none.
inline std::string Number(const std::string& description, const std::string& key) {
  size_t at = description.find("\"" + key + "\":");
  if (at == std::string::npos) return "";
  at += key.size() + 3;
  return description.substr(at, description.find_first_not_of("0123456789", at) - at);
}

}  // namespace detail

// A tensor of zeros, such as Zeros({1, 784}) of float32 or Zeros({8}, {kDLInt, 64, 1}).
inline Tensor Zeros(const std::vector<int64_t>& shape, DLDataType type = {kDLFloat, 32, 1}) {
  return Tensor::FromNDAlloc(detail::Aligned(), tvm::ffi::Shape(shape), type, {kDLCPU, 0});
}

class Model {
 public:
  // Loads a library. Throws std::runtime_error if this CPU cannot run it.
  explicit Model(const std::string& path)
      : library_(Load(path)),
        machine_(library_->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>()) {
    const int pooled = 2;  // tvm::runtime::memory::AllocatorType::kPooled
    machine_->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, pooled);
  }

  // Runs the model on its inputs in order. An output may be an input, or a constant of the model:
  // copy it before you write to it. `function`: "main", or "main_1", ... of other shapes.
  std::vector<Tensor> Run(const std::vector<Tensor>& inputs, const std::string& function = "main") {
    std::vector<tvm::ffi::AnyView> arguments(inputs.begin(), inputs.end());
    tvm::ffi::Any result;
    machine_->GetFunction(function).value().CallPacked(
        arguments.data(), static_cast<int32_t>(arguments.size()), &result);
    std::vector<Tensor> outputs;
    Flatten(result, &outputs);
    return outputs;
  }

 private:
  static tvm::ffi::Module Load(const std::string& path) {
    std::string missing = detail::MissingFlag(detail::Description(path));
    if (!missing.empty()) {
      throw std::runtime_error(path + " was tuned for a CPU with " + missing +
                               ", which this one lacks: tune the model on this machine");
    }
    setenv("TVM_BIND_THREADS", "0", 0);
    std::string threads = detail::Number(detail::Description(path), "threads");
    if (!threads.empty()) setenv("TVM_NUM_THREADS", threads.c_str(), 0);
    return tvm::ffi::Module::LoadFromFile(path);
  }

  static void Flatten(const tvm::ffi::Any& value, std::vector<Tensor>* outputs) {
    if (auto tensor = value.as<Tensor>()) {
      outputs->push_back(*tensor);
      return;
    }
    for (const tvm::ffi::Any& part : value.cast<tvm::ffi::Array<tvm::ffi::Any>>()) {
      Flatten(part, outputs);
    }
  }

  tvm::ffi::Module library_, machine_;
};

}  // namespace droplet

#endif  // DROPLET_MODEL_H_
