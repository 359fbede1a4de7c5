//! How long did this thread work? By its own clock where there is one, so that other processes disturb little.
#![allow(unsafe_code, unreachable_pub)] // the thread's clock

/// Seconds of this thread's own clock.
#[cfg(target_os = "linux")]
pub fn now() -> f64 {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const THREAD_CPU_TIME: i32 = 3;
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: `time` is what a 64-bit Linux calls `struct timespec`.
    unsafe { clock_gettime(THREAD_CPU_TIME, &mut time) };
    time.seconds as f64 + time.nanoseconds as f64 * 1e-9
}

/// Seconds by the wall clock.
#[cfg(not(target_os = "linux"))]
pub fn now() -> f64 {
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}
