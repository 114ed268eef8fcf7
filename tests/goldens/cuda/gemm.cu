// a divisor d of the whole launch: n / d == (umulhi(n, multiplier) + n) >> shift for 0 <= n < 2^31
struct Divisor {
  unsigned value, multiplier, shift;
};
__device__ __forceinline__ int operator/(int n, Divisor d) { return (__umulhi(n, d.multiplier) + n) >> d.shift; }
__device__ __forceinline__ int operator%(int n, Divisor d) { return n - n / d * (int)d.value; }

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int pending>
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory"); }

template <int pending>
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"); }

__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ int floor_divide(int a, int b) {
  const int q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
__device__ __forceinline__ long long floor_divide(long long a, long long b) {
  const long long q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

__device__ __forceinline__ int floor_modulo(int a, int b) {
  const int r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ long long floor_modulo(long long a, long long b) {
  const long long r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// a wgmma matrix descriptor: the address in bits 0-13, in units of 16 bytes, and what is known of the layout above. In a cluster, an address has the
// block's rank above its 18 bits
__device__ __forceinline__ unsigned long long matrix(const void* base, unsigned units, unsigned long long layout) {
  return layout & 0xffffffff00000000ull | (unsigned)layout + ((shared_address(base) & 0x3ffff) >> 4) + units;
}

__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
  unsigned long long state;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void mbarrier_expect(unsigned long long* barrier, unsigned bytes) {
  unsigned long long state;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_init(unsigned long long* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

__device__ __forceinline__ bool mbarrier_passed(unsigned long long* barrier, unsigned parity) {
  unsigned passed;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed) : "r"(shared_address(barrier)), "r"(parity) : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed) : "r"(shared_address(barrier)), "r"(parity) : "memory");
#endif
  return passed;
}

__device__ __forceinline__ void mbarrier_wait(unsigned long long* barrier, unsigned parity) {
  while (!mbarrier_passed(barrier, parity)) {}
}

__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void set_registers_232() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }

__device__ __forceinline__ void set_registers_40() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }

// the 32-bit register that holds the elements at x, the first in the lowest bits
template <typename T>
__device__ __forceinline__ unsigned word(const T* x) {
  if constexpr (sizeof(T) == 1) {  // as bytes that are joined where they are read, each would be in a register of its own
    unsigned found;
    memcpy(&found, x, 4);
    return found;
  } else if constexpr (sizeof(T) == 2) return (unsigned short)x[0] | (unsigned)(unsigned short)x[1] << 16;
  else return (unsigned)x[0];
}
__device__ __forceinline__ unsigned word(const float* x) { return __float_as_uint(x[0]); }

template <typename T>
__device__ __forceinline__ void stmatrix_x4(T* out, const T* source) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(shared_address(out)), "r"(word(source)), "r"(word(source + 4 / sizeof(T))), "r"(word(source + 8 / sizeof(T))), "r"(word(source + 12 / sizeof(T))) : "memory");
}

__device__ __forceinline__ void tma_load_2d(void* out, const TensorMap* map, unsigned long long* barrier, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(shared_address(out)), "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1) : "memory");
}

__device__ __forceinline__ void tma_store_2d(const TensorMap* map, const void* source, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(map), "r"(shared_address(source)), "r"(c0), "r"(c1) : "memory");
}

// of a float that is rounded
__device__ __forceinline__ unsigned short bits_of_bfloat16(float x) {
  return (unsigned short)(__float_as_uint(x) >> 16);
}

// as to_float16; the upper half of the pair, so that the pair is the rounded float
__device__ __forceinline__ float rounded_to_bfloat16(float x) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
  return __uint_as_float(pair);
}

__device__ __forceinline__ unsigned short to_bfloat16(float x) {
  return bits_of_bfloat16(rounded_to_bfloat16(x));
}

__device__ __forceinline__ void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_m64n128k16_bf16(float* d, unsigned long long a, unsigned long long b, int accumulate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
               : "l"(a), "l"(b), "r"(accumulate) : "memory");
}

// nothing that reads these accumulators moves in front of the wgmma.wait_group before
template <int count>
__device__ __forceinline__ void wgmma_retired(float (&accumulators)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(accumulators[i])::"memory");
}
template <int count>
__device__ __forceinline__ void wgmma_retired(int (&accumulators)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(accumulators[i])::"memory");
}

template <int pending>
__device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }

// grid (min(ceildiv(M, 128)*ceildiv(N, 128), 4), 1, 1), block (128, 3, 1)
extern "C" __global__ void __launch_bounds__(384, 1)
gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_d, int M, int N, int K, Divisor by_0) {
  const int blockIdx_x = blockIdx.x;
  __builtin_assume(blockIdx_x >= 0);
  const int threadIdx_x = threadIdx.x;
  __builtin_assume(threadIdx_x < 128);
  const int threadIdx_y = __shfl_sync(0xffffffff, (int)threadIdx.y, 0);
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned short* const a_s = reinterpret_cast<unsigned short*>(shared + 0);  // [3, 128, 64]
  unsigned short* const b_s = reinterpret_cast<unsigned short*>(shared + 49152);  // [3, 128, 64]
  unsigned short* const d_s = reinterpret_cast<unsigned short*>(shared + 98304);  // [2, 2, 64, 64]
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(shared + 131072);  // mbarriers[3]
  unsigned long long* const empty = reinterpret_cast<unsigned long long*>(shared + 131096);  // mbarriers[3]
  wait_for_stream();
  if (threadIdx_x == 0 && threadIdx_y == 0) {
    for (int i = 0; i < 3; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], 8);
    }
    fence_mbarrier_init();
  }
  // the mbarriers are initialized
  __syncthreads();
  if (threadIdx_y < 1) {  // load
    set_registers_40();
    if (threadIdx_x == 0) {
      int p_slot = 0, p_parity = 1;
      for (int t = blockIdx_x; t < ((M + 127) / 128) * ((N + 127) / 128); t += min(((M + 127) / 128) * ((N + 127) / 128), 4)) {
        const int quotient = floor_divide(t % by_0, min((M + 127) / 128 - 2 * (t / by_0), 2));
        const int rest = floor_modulo(t % by_0, min((M + 127) / 128 - 2 * (t / by_0), 2));
        for (int ko = 0; ko < (K + 63) / 64; ++ko) {
          mbarrier_wait(&empty[p_slot], p_parity);
          mbarrier_expect(&full[p_slot], 32768);
          tma_load_2d(&a_s[p_slot * 128 * 64], &map_a, &full[p_slot], 64 * ko, 256 * (t / by_0) + 128 * rest);
          tma_load_2d(&b_s[p_slot * 128 * 64], &map_b, &full[p_slot], 64 * ko, 128 * quotient);
          if (++p_slot == 3) p_slot = 0, p_parity ^= 1;
        }
      }
    }
  } else {  // consumer
    float acc[64];
    unsigned short d_r[32];
    set_registers_232();
    int a_slot = 0, a_parity = 0;
    int r_slot = 0, r_parity = 0;
    for (int t = blockIdx_x; t < ((M + 127) / 128) * ((N + 127) / 128); t += min(((M + 127) / 128) * ((N + 127) / 128), 4)) {
      const int quotient_1 = floor_divide(t % by_0, min((M + 127) / 128 - 2 * (t / by_0), 2));
      const int rest_1 = floor_modulo(t % by_0, min((M + 127) / 128 - 2 * (t / by_0), 2));
      for (int ko = 0; ko < (K + 63) / 64; ++ko) {
        mbarrier_wait(&full[a_slot], a_parity);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
          wgmma_m64n128k16_bf16(&acc[0], matrix(a_s, 1024 * a_slot + 2 * kk + 512 * threadIdx_y - 512, 0x4000004000000000ull), matrix(b_s, 1024 * a_slot + 2 * kk, 0x4000004000000000ull), kk + ko > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (ko > 0) {
          if (threadIdx_x % 32 == 0) {
            mbarrier_arrive(&empty[r_slot]);
          }
          if (++r_slot == 3) r_slot = 0, r_parity ^= 1;
        }
        if (++a_slot == 3) a_slot = 0, a_parity ^= 1;
      }
      wgmma_wait<0>();
      wgmma_retired(acc);
      if (threadIdx_x % 32 == 0) {
        mbarrier_arrive(&empty[r_slot]);
      }
      if (++r_slot == 3) r_slot = 0, r_parity ^= 1;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (threadIdx_x == 0) {
          bulk_wait_read<1>();
        }
        // WAR: the slot of two sub-tiles ago has been read
        named_barrier(threadIdx_y, 128);
#pragma unroll
        for (int v = 0; v < 32; ++v) {
          d_r[v] = to_bfloat16(acc[32 * c + v]);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          stmatrix_x4(&d_s[(((threadIdx_y - 1) * 2 + c) * 64 + 16 * (threadIdx_x / 32) + threadIdx_x % 16) * 64 + 8 * (threadIdx_x % 8 ^ 2 * j + threadIdx_x / 16 % 2)], &d_r[8 * j]);
        }
        fence_proxy_async();
        // RAW: the sub-tile is written
        named_barrier(threadIdx_y, 128);
        if (threadIdx_x == 0) {
          tma_store_2d(&map_d, &d_s[((threadIdx_y - 1) * 2 + c) * 64 * 64], 128 * quotient_1 + 64 * c, 256 * (t / by_0) + 64 * threadIdx_y + 128 * rest_1 - 64);
          bulk_commit();
        }
      }
    }
    if (threadIdx_x == 0) {
      bulk_wait<0>();
    }
  }
}
