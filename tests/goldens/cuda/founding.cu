__device__ __forceinline__ float maximum_or_nan(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void mbarrier_arrive(unsigned long long* barrier) {
  unsigned long long state;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(barrier)) : "memory");
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

// 1 / d for 1 <= d <= 2, where rcp.approx is off by 1 ulp at most (PTX ISA, "rcp"): one step of Newton leaves little more than a half,
// without the branch that a division takes for subnormal and huge numbers
__device__ __forceinline__ float reciprocal_from_1_to_2(float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return fmaf(r, fmaf(-d, r, 1), r);
}

// 1 / (1 + exp(-x)), by an exponential that does not overflow
__device__ __forceinline__ float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0f) * reciprocal_from_1_to_2(1 + e);
}

__device__ __forceinline__ void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// grid (B, 1, 1), block (T, 4*S, 2)
extern "C" __global__ void __launch_bounds__(1024, 1)
cat(const float* __restrict__ tv0, float* __restrict__ tv10, int S, int T) {
  const int blockIdx_x = blockIdx.x;
  __builtin_assume(blockIdx_x >= 0);
  const int threadIdx_x = threadIdx.x;
  const int threadIdx_y = threadIdx.y;
  const int threadIdx_z = threadIdx.z;
  __builtin_assume(threadIdx_z < 2);
  extern __shared__ __align__(1024) unsigned char shared[];
  float* const tv5 = reinterpret_cast<float*>(shared + 0);  // [1, S, T]
  float* const tv6 = reinterpret_cast<float*>(shared + 16 * ((S * T + 3) / 4));  // [1, S, T]
  float* const tv7 = reinterpret_cast<float*>(shared + 32 * ((S * T + 3) / 4));  // [1, S, T]
  float* const tv8 = reinterpret_cast<float*>(shared + 48 * ((S * T + 3) / 4));  // [1, S, T]
  unsigned long long* const ch0_full = reinterpret_cast<unsigned long long*>(shared + 8 * ((max(max(max(max(4 * (S * T), 4 * (S * T) + 16 * ((S * T + 3) / 4)), 4 * (S * T) + 32 * ((S * T + 3) / 4)), 4 * (S * T) + 48 * ((S * T + 3) / 4)), 0) + 7) / 8));  // mbarriers[1]
  unsigned long long* const ch0_empty = reinterpret_cast<unsigned long long*>(shared + 8 * ((max(max(max(max(4 * (S * T), 4 * (S * T) + 16 * ((S * T + 3) / 4)), 4 * (S * T) + 32 * ((S * T + 3) / 4)), 4 * (S * T) + 48 * ((S * T + 3) / 4)), 0) + 7) / 8) + 8);  // mbarriers[1]
  wait_for_stream();
  if (threadIdx_x == 0 && threadIdx_y == 0 && threadIdx_z == 0) {
    mbarrier_init(&ch0_full[0], 4 * (S * T));
    mbarrier_init(&ch0_empty[0], 4 * (S * T));
  }
  // barriers are initialized
  __syncthreads();
  // group3: vertical on TIDz; no data enters; no data leaves
  if (threadIdx_z == 0) {  // group1
    int ch0_p_slot = 0, ch0_p_parity = 1;
    mbarrier_wait(&ch0_empty[ch0_p_slot], ch0_p_parity);
    // group1: horizontal on TIDy; no data enters; ch0 orders what leaves
    if (threadIdx_y < S) {  // t1
      float tv1;
      tv1 = sinf(tv0[(blockIdx_x * S + threadIdx_y) * T + threadIdx_x]);
      tv5[(ch0_p_slot * S + threadIdx_y) * T + threadIdx_x] = cosf(tv1);
    } else if (threadIdx_y - S >= 0 && threadIdx_y - S < S) {  // t2
      float tv2;
      tv2 = tanf(tv0[(blockIdx_x * S + threadIdx_y - S) * T + threadIdx_x]);
      tv6[(ch0_p_slot * S + threadIdx_y - S) * T + threadIdx_x] = maximum_or_nan(tv2, 0.0f);
    } else if (threadIdx_y - 2 * S >= 0 && threadIdx_y - 2 * S < S) {  // t3
      float tv3;
      tv3 = expf(tv0[(blockIdx_x * S + threadIdx_y - 2 * S) * T + threadIdx_x]);
      tv7[(ch0_p_slot * S + threadIdx_y - 2 * S) * T + threadIdx_x] = sigmoid(tv3);
    } else if (threadIdx_y - 3 * S >= 0 && threadIdx_y - 3 * S < S) {  // t4
      float tv4;
      tv4 = logf(tv0[(blockIdx_x * S + threadIdx_y - 3 * S) * T + threadIdx_x]);
      tv8[(ch0_p_slot * S + threadIdx_y - 3 * S) * T + threadIdx_x] = tanhf(tv4);
    }
    mbarrier_arrive(&ch0_full[ch0_p_slot]);
    ch0_p_parity ^= 1;
  } else if (threadIdx_z == 1) {  // group2
    int ch0_c_slot = 0, ch0_c_parity = 0;
    mbarrier_wait(&ch0_full[ch0_c_slot], ch0_c_parity);
    float tv9;
    if (threadIdx_y < S) {
      tv9 = tv5[(ch0_c_slot * S + threadIdx_y) * T + threadIdx_x];
    } else if (S <= threadIdx_y && threadIdx_y < 2 * S) {
      tv9 = tv6[(ch0_c_slot * S + threadIdx_y - S) * T + threadIdx_x];
    } else if (2 * S <= threadIdx_y && threadIdx_y < 3 * S) {
      tv9 = tv7[(ch0_c_slot * S + threadIdx_y - 2 * S) * T + threadIdx_x];
    } else {
      tv9 = tv8[(ch0_c_slot * S + threadIdx_y - 3 * S) * T + threadIdx_x];
    }
    tv10[(blockIdx_x * (4 * S) + threadIdx_y) * T + threadIdx_x] = -tv9;
    mbarrier_arrive(&ch0_empty[ch0_c_slot]);
    ch0_c_parity ^= 1;
  }
}
