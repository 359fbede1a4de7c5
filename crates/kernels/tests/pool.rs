//! The pool: every task runs once, whoever calls, whatever panics, however long the workers slept.

use lattice_kernels::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn counts(pool: &Pool, tasks: usize) -> Vec<usize> {
    let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    pool.each(tasks, |i| {
        counts[i].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn every_task_runs_once() {
    for threads in [1, 2, 3, 8] {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads);
        for tasks in (0..200).chain([10_000]) {
            assert!(counts(&pool, tasks).iter().all(|&n| n == 1), "{threads} threads, {tasks} tasks");
        }
    }
}

#[test]
fn workers_that_sleep_are_woken() {
    let pool = Pool::new(3).unwrap();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(3));
        // Each of three tasks waits for the other two: all threads have to come.
        let barrier = std::sync::Barrier::new(3);
        pool.each(3, |_| {
            barrier.wait();
        });
    }
}

#[test]
fn items_and_chunks_are_given_once() {
    let pool = Pool::new(4).unwrap();
    let seen = Mutex::new(Vec::new());
    pool.each_of((0..100).map(|i| i.to_string()).collect(), |item| seen.lock().unwrap().push(item));
    let mut seen = seen.into_inner().unwrap();
    seen.sort_by_key(|item| item.parse::<usize>().unwrap());
    assert_eq!(seen, (0..100).map(|i| i.to_string()).collect::<Vec<_>>());

    let mut data = vec![0; 103];
    pool.chunks(&mut data, 10, |i, chunk| chunk.iter_mut().enumerate().for_each(|(j, x)| *x = i * 10 + j));
    assert_eq!(data, (0..103).collect::<Vec<_>>());
}

#[test]
fn a_panic_is_the_callers_and_leaves_the_pool_usable() {
    let pool = Pool::new(4).unwrap();
    for round in 0..50 {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            pool.each(40, |i| assert!(i != round % 40, "task {i} is bad"));
        }))
        .unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), &format!("task {} is bad", round % 40));
        assert!(counts(&pool, 64).iter().all(|&n| n == 1));
    }
}

#[test]
fn a_task_may_use_the_pool() {
    let pool = Pool::new(2).unwrap();
    let count = AtomicUsize::new(0);
    pool.each(4, |_| {
        pool.each(5, |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(count.into_inner(), 20);
}

#[test]
fn many_callers_take_turns() {
    let pool = Pool::new(3).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..300).for_each(|n| assert!(counts(&pool, n % 17).iter().all(|&n| n == 1))));
        }
    });
}
