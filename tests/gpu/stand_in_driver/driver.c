/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A stand-in for CUDA's driver and runtime, to test without a card.
 *
 * It has what TVM's CUDA runtime calls: memory is the host's, kernels do nothing, and a virtual
 * clock goes on by the time of each launch, which follows from its grid and its block. It refuses
 * what an H100 refuses: more than 1,024 threads or 227 KB of shared memory in a block. It does not
 * initialize in a process of limited addresses, of which a driver reserves more than the card's
 * memory (seen on an H200: error 3 at 8 and at 128 GiB). faults.h has faults on demand.
 *
 * Where the environment names a file as STAND_IN_OUTPUT, each launch writes it to the newest memory
 * of exactly its size. A test that allocates a kernel's output last so gets the output that it has
 * computed itself: what is around a kernel can be tried with it, but never the kernel.
 *
 * The same source makes libcuda.so.1 and libcudart.so.13; libcudart's symbols need the version that
 * runtime.map gives them. Each process has its own clock, so each library has too: only
 * libcudart's is read, and libcuda's launches reach it through stand_in_launch().
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_SUCH_SYMBOL = 500 };

static const char NAME[] = "stand-in for a CUDA device";

#ifdef RUNTIME

#include "faults.h"

static double clock_ms = 0.0;

typedef struct Memory {
  void *pointer;
  size_t bytes;
  struct Memory *older;
} Memory;

static Memory *newest = NULL;

/* The bytes of the file that STAND_IN_OUTPUT names; no bytes without one. */
static const void *output(size_t *bytes) {
  static char *content = NULL;
  static size_t length = 0;
  const char *path = getenv("STAND_IN_OUTPUT");
  if (content == NULL && path != NULL) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) abort();
    length = (size_t)ftell(file);
    rewind(file);
    content = malloc(length + 1);
    if (content == NULL || fread(content, 1, length, file) != length) abort();
    fclose(file);
  }
  return *bytes = length, content;
}

void stand_in_launch(double ms) {
  size_t bytes;
  const void *content = output(&bytes);
  clock_ms += ms;
  if (content == NULL) return;
  for (Memory *memory = newest; memory != NULL; memory = memory->older) {
    if (memory->bytes == bytes) {
      memcpy(memory->pointer, content, bytes);
      return;
    }
  }
}

typedef struct {
  double ms;
} Event;

static int start(void) {
  struct rlimit addresses;
  getrlimit(RLIMIT_AS, &addresses);
  return addresses.rlim_cur == RLIM_INFINITY ? stand_in_status() : NOT_INITIALIZED;
}

int cudaGetDeviceCount(int *count) { return *count = 1, start(); }
int cudaGetDevice(int *device) { return *device = 0, start(); }
int cudaSetDevice(int device) { return device == 0 ? start() : 101; }
int cudaGetLastError(void) { return stand_in_status(); }
int cudaPeekAtLastError(void) { return stand_in_status(); }
const char *cudaGetErrorName(int error) { return error ? "standInError" : "cudaSuccess"; }
const char *cudaGetErrorString(int error) { return error ? "refused by the stand-in" : "no error"; }

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  if (device != 0) return 101;
  switch (attribute) {
    case 1: *value = 1024; break;         /* threads of a block */
    case 2: case 3: *value = 1024; break; /* its first two extents */
    case 4: *value = 64; break;
    case 8: *value = 49152; break;        /* shared bytes of a block */
    case 10: *value = 32; break;          /* warp */
    case 12: *value = 65536; break;       /* registers of a block */
    case 13: *value = 1980000; break;     /* clock, kHz */
    case 16: *value = 132; break;         /* multiprocessors */
    case 38: *value = 50 << 20; break;    /* L2 bytes */
    case 75: *value = 9; break;           /* compute capability */
    case 76: *value = 0; break;
    case 97: *value = 232448; break;      /* shared bytes of a block that asks for more */
    default: *value = 0;
  }
  return 0;
}

/* cudaDeviceProp begins with name[256], uuid[16], luid[8], a node mask and the bytes of memory. */
int cudaGetDeviceProperties(char *properties, int device) {
  size_t bytes = (size_t)80 << 30;
  strcpy(properties, NAME);
  memcpy(properties + 288, &bytes, sizeof bytes);
  return device == 0 ? 0 : 101;
}

int cudaMallocHost(void **pointer, size_t bytes) {
  int status = allocation_status();
  if (status != 0) return status;
  *pointer = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  if (*pointer == NULL) return OUT_OF_MEMORY;
  memset(*pointer, 0, bytes);
  return 0;
}
int cudaFreeHost(void *pointer) { return free(pointer), stand_in_status(); }
int cudaMalloc(void **pointer, size_t bytes) {
  int status = cudaMallocHost(pointer, bytes);
  if (status != 0) return status;
  Memory *memory = malloc(sizeof *memory);
  if (memory == NULL) return OUT_OF_MEMORY;
  *memory = (Memory){*pointer, bytes, newest};
  newest = memory;
  return 0;
}
int cudaFree(void *pointer) {
  for (Memory **place = &newest; *place != NULL; place = &(*place)->older) {
    if ((*place)->pointer == pointer) {
      Memory *memory = *place;
      *place = memory->older;
      free(memory);
      break;
    }
  }
  return cudaFreeHost(pointer);
}
int cudaMemGetInfo(size_t *left, size_t *all) { return *left = *all = (size_t)80 << 30, 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  (void)kind, (void)stream;
  return memmove(to, from, bytes), stand_in_status();
}
int cudaMemcpyPeerAsync(void *to, int d, const void *from, int e, size_t bytes, void *stream) {
  (void)d, (void)e, (void)stream;
  return memmove(to, from, bytes), stand_in_status();
}

int cudaEventCreate(Event **event) {
  return (*event = calloc(1, sizeof **event)) ? stand_in_status() : OUT_OF_MEMORY;
}
int cudaEventDestroy(Event *event) { return free(event), stand_in_status(); }
int cudaEventRecord(Event *event, void *stream) {
  return (void)stream, event->ms = clock_ms, stand_in_status();
}
int cudaEventSynchronize(Event *event) { return (void)event, wait_status(); }
int cudaEventElapsedTime(float *ms, Event *from, Event *to) {
  return *ms = (float)(to->ms - from->ms), stand_in_status();
}

int cudaStreamCreate(void **stream) { return *stream = calloc(1, 1), stand_in_status(); }
int cudaStreamCreateWithFlags(void **stream, unsigned f) { return (void)f, cudaStreamCreate(stream); }
int cudaStreamDestroy(void *stream) { return free(stream), stand_in_status(); }
int cudaStreamSynchronize(void *stream) { return (void)stream, wait_status(); }
int cudaStreamWaitEvent(void *s, void *e, unsigned f) { return (void)s, (void)e, (void)f, wait_status(); }
/* Graphs are not among what tuning uses. */
int cudaStreamBeginCapture(void) { return INVALID_VALUE; }
int cudaStreamEndCapture(void) { return INVALID_VALUE; }
int cudaGraphInstantiate(void) { return INVALID_VALUE; }
int cudaGraphLaunch(void) { return INVALID_VALUE; }
int cudaGraphDestroy(void) { return INVALID_VALUE; }
int cudaGraphExecDestroy(void) { return INVALID_VALUE; }

#else

typedef struct {
  unsigned grid[3], block[3], shared_bytes;
} LaunchConfig; /* the beginning of CUlaunchConfig */

/* A status of faults.h, which libcudart keeps; none where it is not loaded. */
static int status_of(const char *name) {
  int (*status)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, name);
  return status == NULL ? 0 : status();
}

int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetName(char *name, int length, int device) {
  (void)device;
  strncpy(name, NAME, (size_t)length);
  name[length - 1] = '\0';
  return 0;
}
int cuGetErrorName(int error, const char **name) {
  return *name = error ? "STAND_IN_ERROR" : "CUDA_SUCCESS", 0;
}
int cuGetErrorString(int error, const char **text) {
  return *text = error ? "refused by the stand-in" : "no error", 0;
}
int cuModuleLoadData(void **module, const void *image) {
  /* A compiled kernel: an ELF file, or a fat binary around one. */
  const unsigned char *bytes = image;
  int is_elf = memcmp(bytes, "\177ELF", 4) == 0;
  int is_fat = bytes[0] == 0x50 && bytes[1] == 0xed && bytes[2] == 0x55 && bytes[3] == 0xba;
  return *module = calloc(1, 1), is_elf || is_fat ? status_of("stand_in_status") : 200;
}
int cuModuleUnload(void *module) { return free(module), status_of("stand_in_status"); }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  return *function = (void *)name, name == NULL ? NO_SUCH_SYMBOL : 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function;
  return attribute == 8 && value > 232448 ? INVALID_VALUE : 0; /* 8: dynamic shared bytes */
}
int cuTensorMapEncodeTiled(void) { return INVALID_VALUE; }

int cuLaunchKernelEx(const LaunchConfig *config, void *f, void **parameters, void **extra) {
  (void)f, (void)parameters, (void)extra;
  unsigned long threads = 1, blocks = 1;
  for (int axis = 0; axis < 3; ++axis) {
    threads *= config->block[axis];
    blocks *= config->grid[axis];
  }
  if (threads == 0 || blocks == 0 || threads > 1024 || config->shared_bytes > 232448) {
    return INVALID_VALUE;
  }
  int status = status_of("stand_in_launch_status");
  if (status != 0) return status;
  void (*launch)(double) = (void (*)(double))dlsym(RTLD_DEFAULT, "stand_in_launch");
  /* Somewhat better with threads near 256 and blocks that fill 132 multiprocessors. */
  double off = (double)(threads > 256 ? threads : 256) / (threads > 256 ? 256 : threads);
  double waves = (double)((blocks + 131) / 132) * 132 / (double)blocks;
  if (launch != NULL) launch(0.05 * (1.0 + 0.25 * (off - 1.0)) * waves);
  return 0;
}

#endif
