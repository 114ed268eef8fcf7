"""Special functions that CUDA lacks: :mod:`taskfuse.ir.special_functions` in CUDA C++."""

from __future__ import annotations

# formulas and constants: NIST Digital Library of Mathematical Functions (DLMF)
SPECIAL = """
// log(exp(a) + exp(b)): infinities of one sign have no difference
template <typename T>
__device__ __forceinline__ T log_of_sum(T a, T b) {
  if (a == b) return a + (T)0.69314718055994531;
  return (a > b ? a : b) + log1p(exp(-fabs(a - b)));
}

// the recurrence (DLMF 5.5.2), then the asymptotic series (5.11.2) with the Bernoulli numbers to B16; reflected below 0 (5.5.4)
template <typename T>
__device__ inline T digamma(T x) {
  if (x == 0) return copysign((T)__int_as_float(0x7f800000), -x);
  T y = 0;
  if (x < 0) {
    const T off = x - rint(x);
    if (off == 0) return __int_as_float(0x7fffffff);
    y = (T)-3.14159265358979324 * cospi(off) / sinpi(off);
    x = 1 - x;
  }
  const int steps = x < (sizeof(T) == 4 ? 5 : 10) ? (sizeof(T) == 4 ? 5 : 10) - (int)x : 0;
  const T least = x;
  x += steps;
  const T z = 1 / (x * x);
  T series = (T)(3617.0 / 8160);
  series = (T)(1.0 / 12) - series * z;
  series = (T)(691.0 / 32760) - series * z;
  series = (T)(1.0 / 132) - series * z;
  series = (T)(1.0 / 240) - series * z;
  series = (T)(1.0 / 252) - series * z;
  series = (T)(1.0 / 120) - series * z;
  series = (T)(1.0 / 12) - series * z;
  // the result is less than its terms, so what each difference loses is summed, too (Knuth's two-sum)
  T total = log(x) - (T)0.5 / x - series * z, lost = y;
  for (int k = steps - 1; k >= 0; --k) {
    const T term = -1 / (least + k), next = total + term, part = next - total;
    if (isinf(next)) return next;
    lost += (total - (next - part)) + (term - part);
    total = next;
  }
  return total + lost;
}

// the sum of (q + k)^-x over k >= 0 for q > 0: ten terms, then the formula of Euler and Maclaurin (DLMF 25.11.5, 2.10.1) with B2j / (2j)! to B24
template <typename T>
__device__ inline T zeta_of_positive(T x, T q) {
  T total = 0;
  for (int k = 0; k < 10; ++k) total += pow(q + k, -x);
  const T end = q + 10, power = pow(end, -x), z = 1 / (end * end);
  total += pow(end, 1 - x) / (x - 1);
  if (!(power > 0)) return total;
  const T factors[12] = {
    (T)(1.0 / 12), (T)(-1.0 / 720), (T)(1.0 / 30240), (T)(-1.0 / 1209600), (T)(1.0 / 47900160), (T)(-691.0 / 1307674368000.0),
    (T)(1.0 / 74724249600.0), (T)(-3617.0 / 10670622842880000.0), (T)(43867.0 / 5109094217170944000.0),
    (T)(-174611.0 / 802857662698291200000.0), (T)(77683.0 / 14101100039391805440000.0), (T)(-236364091.0 / 1693824136731743669452800000.0)};
  T rest = power / 2, term = x * power / end;
  for (int j = 0; j < 12; ++j) {
    rest += factors[j] * term;
    term *= (x + (2 * j + 1)) * (x + (2 * j + 2)) * z;
  }
  return total + rest;
}

// for q < 0 the terms of negative numbers are, but for their sign, a difference of two such sums
template <typename T>
__device__ inline T zeta(T x, T q) {
  if (x != x || q != q || x < 1) return __int_as_float(0x7fffffff);
  if (x == 1 || (q <= 0 && q == floor(q))) return __int_as_float(0x7f800000);
  if (q >= 0) return zeta_of_positive<T>(x, q);
  if (x != floor(x)) return __int_as_float(0x7fffffff);
  const T last = ceil(q) - q;
  const bool is_even = fmod(x, (T)2) == 0;
  if (!is_even && last == (T)0.5) return zeta_of_positive<T>(x, 1 - q);
  const T mirrored = zeta_of_positive<T>(x, last) - zeta_of_positive<T>(x, 1 - q);
  const T found = zeta_of_positive<T>(x, 1 - last) + (is_even ? mirrored : -mirrored);
  return found == found ? found : copysign((T)__int_as_float(0x7f800000), last - (T)0.5);
}
"""
