//! How long did this thread work? By its own clock where there is one, so that other processes disturb little.
#![allow(unsafe_code, unreachable_pub)] // the thread's clock

/// Seconds that a call takes, the best of many.
pub fn best(kernel: &mut impl FnMut()) -> f64 {
    kernel();
    let start = now();
    kernel();
    // So many calls together that the clock's own time does not matter.
    let calls = (20e-6 / (now() - start).max(2e-8)).ceil() as usize;
    let (begin, mut least, mut runs) = (now(), f64::INFINITY, 0);
    while runs < 5 || now() - begin < 0.03 {
        let start = now();
        (0..calls).for_each(|_| kernel());
        least = least.min((now() - start) / calls as f64);
        runs += 1;
    }
    least
}

/// Seconds of this thread's own clock.
#[cfg(target_os = "linux")]
fn now() -> f64 {
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
fn now() -> f64 {
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}
