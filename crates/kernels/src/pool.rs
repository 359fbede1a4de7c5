//! The threads that share one operation after another: they spin for a moment before they sleep, since the next
//! operation of a forward pass comes within microseconds and waking a sleeping thread takes tens of them.
//!
//! A caller posts a job, works on it itself, closes it, and waits for those workers that joined; a worker that wakes too
//! late finds the job closed and lets it be. Everything about the current job is in one word ([`State`]), so joining and
//! closing cannot cross.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Looks at the state before an idle worker sleeps: some tens of microseconds.
const SPINS: usize = 4_000;
/// Looks at the state before a caller who waits for workers lets others have the core.
const SPINS_OF_CALLER: usize = 20_000;

/// A number of threads, the caller's own among them, that share the tasks of a job.
///
/// Jobs of different callers run one after another. A task that itself calls a pool runs those tasks alone.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    callers: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

/// What workers do: `run(task)` for tasks that nobody took yet.
#[derive(Clone, Copy)]
struct Job {
    run: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

#[derive(Debug)]
struct Shared {
    state: Line<AtomicU64>,
    next: Line<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Held from the last look at the state until asleep, and to wake.
    sleeping: Mutex<()>,
    /// Workers that sleep or are about to.
    asleep: AtomicUsize,
    wake: Condvar,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

// SAFETY: `job` is written by the caller who holds `Pool::callers` while the state is closed and nobody has joined, and
// read only by workers that joined, which they can only while it is open; `State` orders the two. What the job points to
// is `Sync`, and outlives the job because its caller waits for all who joined.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in `job` is used by joined workers only.
unsafe impl Send for Shared {}

/// A cache line of its own, so that spinning on one number does not slow the others.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Line<T>(T);

/// The state word: the job's number, whether it is open, and how many workers have joined it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const OPEN: u64 = 1 << 31;
    const STOP: u64 = 1 << 30;
    const JOINED: u64 = State::STOP - 1;

    fn number(self) -> u64 {
        self.0 >> 32
    }

    fn open(self) -> bool {
        self.0 & State::OPEN != 0
    }

    fn stop(self) -> bool {
        self.0 & State::STOP != 0
    }

    fn joined(self) -> u64 {
        self.0 & State::JOINED
    }
}

thread_local! {
    /// Whether this thread is working on a job.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// A pool of `threads` threads, the caller's included: `threads - 1` are started here, and end with the pool.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            state: Line::default(),
            next: Line::default(),
            job: UnsafeCell::new(None),
            panic: Mutex::default(),
            sleeping: Mutex::default(),
            asleep: AtomicUsize::new(0),
            wake: Condvar::new(),
        });
        let mut pool = Pool { shared, callers: Mutex::default(), workers: Vec::new() };
        for i in 1..threads {
            let shared = pool.shared.clone();
            let worker = std::thread::Builder::new().name(format!("lattice-{i}")).spawn(move || shared.work())?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Threads that share a job.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `run` once for each of the numbers below `tasks`, in any order, on all threads.
    ///
    /// # Panics
    /// If `run` panics, with what the first of the panics said, once no thread works on the job any more.
    pub fn each(&self, tasks: usize, run: impl Fn(usize) + Sync) {
        if tasks <= 1 || self.workers.is_empty() || BUSY.get() {
            return (0..tasks).for_each(run);
        }
        self.share(tasks, &run);
    }

    /// Calls `run` once with each of `items`, on all threads.
    ///
    /// # Panics
    /// As [`Pool::each`]; items that were not taken are then leaked.
    pub fn each_of<T: Send>(&self, items: Vec<T>, run: impl Fn(T) + Sync) {
        if items.len() <= 1 || self.workers.is_empty() || BUSY.get() {
            return items.into_iter().for_each(run);
        }
        // Elements are moved out one by one; the vector only frees its memory.
        let mut items: Vec<ManuallyDrop<T>> = items.into_iter().map(ManuallyDrop::new).collect();
        let first = Items(items.as_mut_ptr());
        self.share(items.len(), &|i| {
            // SAFETY: i is below the length, and each number is given once, so this item is moved out once.
            run(unsafe { first.take(i) })
        });
    }

    /// Calls `run(i, chunk)` once for chunk `i` of the chunks of `len` that `data` is cut into; the last may be shorter.
    ///
    /// # Panics
    /// As [`Pool::each`], and if `len` is 0.
    pub fn chunks<T: Send>(&self, data: &mut [T], len: usize, run: impl Fn(usize, &mut [T]) + Sync) {
        self.each_of(data.chunks_mut(len).enumerate().collect(), |(i, chunk)| run(i, chunk));
    }

    fn share(&self, tasks: usize, run: &(dyn Fn(usize) + Sync)) {
        let turn = lock(&self.callers);
        let shared = &*self.shared;
        let run: *const (dyn Fn(usize) + Sync) = run;
        // SAFETY: only the lifetime changes: the job is closed and left by all before `run` goes.
        let run: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(run) };
        // SAFETY: the state is closed and nobody has joined, so no worker reads the job; `turn` keeps other callers away.
        unsafe { *shared.job.get() = Some(Job { run, tasks }) };
        shared.next.0.store(0, Ordering::Relaxed);
        let number = State(shared.state.0.load(Ordering::Relaxed)).number().wrapping_add(1) & u64::from(u32::MAX);
        // Either this store is seen by a worker before it sleeps, or its count of sleepers is seen here.
        shared.state.0.store(number << 32 | State::OPEN, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            drop(lock(&shared.sleeping));
            shared.wake.notify_all();
        }
        shared.help(Job { run, tasks });
        shared.state.0.fetch_and(!State::OPEN, Ordering::SeqCst);
        let mut spins = 0;
        while State(shared.state.0.load(Ordering::Acquire)).joined() > 0 {
            spins += 1;
            match spins < SPINS_OF_CALLER {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
        let panic = lock(&shared.panic).take();
        drop(turn);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.0.fetch_or(State::STOP, Ordering::SeqCst);
        drop(lock(&self.shared.sleeping));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, and has none of its own.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// A worker's life.
    fn work(&self) {
        let mut done = 0;
        loop {
            let state = self.wait(done);
            if state.stop() {
                return;
            }
            // This fails if somebody joined or closed the job meanwhile: look again.
            if self.state.0.compare_exchange(state.0, state.0 + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            done = state.number();
            // SAFETY: joined, so the caller waits for this worker before it touches the job.
            let job = unsafe { *self.job.get() };
            self.help(job.expect("an open state has a job"));
            self.state.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open job other than number `done`, or for the end.
    fn wait(&self, done: u64) -> State {
        let ready = || {
            let state = State(self.state.0.load(Ordering::SeqCst));
            (state.stop() || state.open() && state.number() != done).then_some(state)
        };
        loop {
            for _ in 0..SPINS {
                if let Some(state) = ready() {
                    return state;
                }
                std::hint::spin_loop();
            }
            let sleeping = lock(&self.sleeping);
            self.asleep.fetch_add(1, Ordering::SeqCst);
            if ready().is_none() {
                drop(self.wake.wait(sleeping));
            }
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Takes tasks until there are none left.
    fn help(&self, job: Job) {
        BUSY.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: this thread is the job's caller or has joined it; either way the closure lives until it leaves.
            let run = unsafe { &*job.run };
            loop {
                let task = self.next.0.fetch_add(1, Ordering::Relaxed);
                if task >= job.tasks {
                    return;
                }
                run(task);
            }
        }));
        BUSY.set(false);
        if let Err(panic) = result {
            self.next.0.store(job.tasks, Ordering::Relaxed);
            lock(&self.panic).get_or_insert(panic);
        }
    }
}

/// Items that are moved out by number.
struct Items<T>(*mut ManuallyDrop<T>);

impl<T> Items<T> {
    /// # Safety
    /// `i` is below the number of items, and is given once.
    unsafe fn take(&self, i: usize) -> T {
        // SAFETY: as the caller promises.
        unsafe { ManuallyDrop::take(&mut *self.0.add(i)) }
    }
}

// SAFETY: threads take different items, and an item may be sent.
unsafe impl<T: Send> Sync for Items<T> {}

/// The lock's value; what it guards is whole even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
