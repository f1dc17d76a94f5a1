//! A worker: one thread, with its tasks and their sockets. Neither ever leaves the thread.
//!
//! A hit is one receive and one send, so waking its task must be cheap. In a general-purpose runtime it is not.
//! There, any task on any thread may poll a socket, so each wait registers a waker under a lock, and the event
//! removes it under the same lock. Each sleep of the thread checks a timer wheel and reads the clock three times.
//! Here a socket belongs to one task, and both belong to one thread. An event marks the socket and queues the task.
//! To check a socket is one load, and a wait registers nothing.
//!
//! Timers and name resolution are rare. They use the runtime that the thread has entered
//! ([`tokio::runtime::Handle::enter`]). A task that is woken from there, or from any other thread, is woken by the
//! [`Bell`].
//!
//! In each turn, every task that was queued at its start is polled once. Then events are fetched, without waiting if
//! a task is queued again. A task that always has something to receive is queued behind the others after
//! [`RECEIVES_MAX`] receives.

mod watched;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use socket2::Socket;

use crate::worker::watched::{Number, Reach, Readiness};

pub(crate) use crate::worker::watched::{Resting, Watched};

/// Events fetched at once.
const EVENTS_MAX: usize = 256;
/// Receives of a task before the others' turn.
const RECEIVES_MAX: u32 = 128;
/// The bell's number among the sockets.
const BELL: u64 = u64::MAX;
/// The events of a socket. Writability is watched only after a send was incomplete: a Unix socket would otherwise
/// report it after each read of its peer.
const INPUT: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
/// A time-out of zero.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

thread_local! {
    static HERE: OnceCell<Worker> = const { OnceCell::new() };
    /// The task that is being polled.
    static RUNNING: Cell<TaskId> = const { Cell::new(TaskId::NONE) };
    /// The receives left of [`RECEIVES_MAX`] for this task.
    static RECEIVES_LEFT: Cell<u32> = const { Cell::new(0) };
}

/// A task's slot; the upper half counts the earlier tasks in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskId(u64);

impl TaskId {
    const NONE: Self = Self(u64::MAX);

    fn place(self) -> usize {
        self.0 as u32 as usize
    }

    /// The next task in the slot.
    fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << 32))
    }
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

/// A slot for a task.
struct Place {
    id: TaskId,
    queued: bool,
    /// None while it is polled, and once it has ended.
    task: Option<Box<Task>>,
}

#[derive(Default)]
struct Inside {
    places: Vec<Place>,
    free_places: Vec<TaskId>,
    queue: VecDeque<TaskId>,
    /// Indexed by the numbers under which the kernel knows them.
    sockets: Vec<Option<Arc<Readiness>>>,
    free_sockets: Vec<usize>,
}

/// The tasks and sockets of a thread.
pub struct Worker {
    reach: Arc<Reach>,
    bell: Arc<Bell>,
    inside: RefCell<Inside>,
}

impl Worker {
    /// For the thread that will run it.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let ring = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &ring, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        let reach = Arc::new(Reach { epoll, left: Mutex::default() });
        Ok(Self { reach, bell: Arc::new(Bell { ring, woken: Mutex::default() }), inside: RefCell::default() })
    }

    /// Runs the task, and those that it spawns ([`spawn`]), for ever. Returns an error if the kernel reports one.
    pub fn run(self, first: impl Future<Output = ()> + 'static) -> io::Error {
        HERE.with(|here| {
            let worker = here.get_or_init(|| self);
            worker.spawn(Box::pin(first));
            let mut events = Vec::with_capacity(EVENTS_MAX);
            loop {
                worker.run_queued();
                let mut wait = if worker.inside.borrow().queue.is_empty() { None } else { Some(&AT_ONCE) };
                // All that the kernel has to report is known before any task runs.
                loop {
                    match epoll::wait(&worker.reach.epoll, spare_capacity(&mut events), wait) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return error.into(),
                    }
                    let are_all = events.len() < EVENTS_MAX;
                    events.drain(..).for_each(|event| worker.happened(event));
                    if are_all {
                        break;
                    }
                    wait = Some(&AT_ONCE);
                }
            }
        })
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) {
        let inside = &mut *self.inside.borrow_mut();
        let id = inside.free_places.pop().unwrap_or(TaskId(inside.places.len() as u64));
        let waker = Arc::new(TaskWaker { id, rung: AtomicBool::new(false), bell: self.bell.clone() }).into();
        let place = Place { id, queued: true, task: Some(Box::new(Task { future, waker })) };
        match inside.places.get_mut(id.place()) {
            Some(free) => *free = place,
            None => inside.places.push(place),
        }
        inside.queue.push_back(id);
    }

    /// Polls each task that is queued now.
    fn run_queued(&self) {
        let count = self.inside.borrow().queue.len();
        for _ in 0..count {
            let Some((id, mut task)) = self.inside.borrow_mut().next_task() else { continue };
            RUNNING.set(id);
            RECEIVES_LEFT.set(RECEIVES_MAX);
            let mut cx = Context::from_waker(&task.waker);
            // A task that panics ends; the others continue.
            let polled = catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut cx)));
            if matches!(polled, Ok(Poll::Pending)) {
                self.inside.borrow_mut().put_back(id, task);
            } else {
                drop(task); // with its sockets
                self.inside.borrow_mut().free(id);
            }
            RUNNING.set(TaskId::NONE);
        }
    }

    fn happened(&self, event: epoll::Event) {
        let number = event.data.u64();
        if number == BELL {
            let woken = std::mem::take(&mut *self.bell.woken.lock().unwrap_or_else(PoisonError::into_inner));
            for waker in woken {
                waker.rung.store(false, SeqCst);
                self.inside.borrow_mut().queue_task(waker.id);
            }
            return;
        }
        let inside = &mut *self.inside.borrow_mut();
        // The event may be that of a closed socket with the same number. This is harmless: the next receive finds
        // nothing.
        let Some(Some(socket)) = inside.sockets.get(number as usize) else { return };
        socket.add(event.flags);
        let task = TaskId(socket.task.load(Relaxed));
        inside.queue_task(task);
    }

    fn watch(&self, socket: &Socket) -> io::Result<(Arc<Readiness>, Number)> {
        let readiness = Arc::new(Readiness::default());
        let inside = &mut *self.inside.borrow_mut();
        if inside.free_sockets.is_empty() {
            let left = std::mem::take(&mut *self.reach.left.lock().unwrap_or_else(PoisonError::into_inner));
            for number in left {
                inside.forget(number);
            }
        }
        let number = inside.free_sockets.pop().unwrap_or(inside.sockets.len());
        if number == inside.sockets.len() {
            inside.sockets.push(None);
        }
        if let Some(slot) = inside.sockets.get_mut(number) {
            *slot = Some(readiness.clone());
        }
        if let Err(error) = epoll::add(&self.reach.epoll, socket, EventData::new_u64(number as u64), INPUT) {
            inside.forget(number);
            return Err(error.into());
        }
        Ok((readiness, Number { at: number, of: self.reach.clone() }))
    }

    /// Changes the watched events of the socket. The kernel reports at once those that are already true.
    fn watch_for(&self, watched: &Watched, flags: EventFlags) -> io::Result<()> {
        let number = EventData::new_u64(watched.number.at as u64);
        Ok(epoll::modify(&self.reach.epoll, &watched.socket, number, flags)?)
    }
}

impl Inside {
    fn next_task(&mut self) -> Option<(TaskId, Box<Task>)> {
        let id = self.queue.pop_front()?;
        let place = self.places.get_mut(id.place()).filter(|place| place.id == id)?;
        place.queued = false;
        Some((id, place.task.take()?))
    }

    fn queue_task(&mut self, id: TaskId) {
        if let Some(place) = self.places.get_mut(id.place())
            && place.id == id
            && !std::mem::replace(&mut place.queued, true)
        {
            self.queue.push_back(id);
        }
    }

    fn put_back(&mut self, id: TaskId, task: Box<Task>) {
        if let Some(place) = self.places.get_mut(id.place()) {
            place.task = Some(task);
        }
    }

    fn free(&mut self, id: TaskId) {
        if let Some(place) = self.places.get_mut(id.place()) {
            place.id = id.next();
            self.free_places.push(place.id);
        }
    }

    fn forget(&mut self, socket: usize) {
        if let Some(slot) = self.sockets.get_mut(socket) {
            *slot = None;
            self.free_sockets.push(socket);
        }
    }
}

/// Runs the future as a task of this thread's worker; outside of one it is dropped.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    HERE.with(|here| {
        if let Some(worker) = here.get() {
            worker.spawn(Box::pin(future));
        }
    });
}

/// This thread is a worker's.
pub(crate) fn is_here() -> bool {
    HERE.with(|here| here.get().is_some())
}

/// Tasks that other threads have woken.
struct Bell {
    ring: OwnedFd,
    woken: Mutex<Vec<Arc<TaskWaker>>>,
}

struct TaskWaker {
    id: TaskId,
    /// The task is among those woken from elsewhere.
    rung: AtomicBool,
    bell: Arc<Bell>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_here = HERE.try_with(|here| match here.get() {
            Some(worker) if Arc::ptr_eq(&worker.bell, &self.bell) => {
                worker.inside.borrow_mut().queue_task(self.id);
                true
            }
            _ => false,
        });
        if is_here == Ok(true) || self.rung.swap(true, SeqCst) {
            return;
        }
        let mut woken = self.bell.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(self.clone());
        if woken.len() == 1 {
            // Each ring is an event: the number need not be read, and does not overflow.
            let _ = rustix::io::write(&self.bell.ring, &1_u64.to_ne_bytes());
        }
    }
}

/// Whether the running task may receive once more; if not, it is queued behind the others.
fn is_its_turn() -> bool {
    let left = RECEIVES_LEFT.get();
    if left == 0 {
        HERE.with(|here| {
            if let Some(worker) = here.get() {
                worker.inside.borrow_mut().queue_task(RUNNING.get());
            }
        });
        return false;
    }
    RECEIVES_LEFT.set(left - 1);
    true
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    use rustix::net::RecvFlags;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::oneshot;

    use super::*;
    use crate::Stream;

    const LONG: Duration = Duration::from_secs(20);

    /// What a worker's tasks report, which begin with this one.
    fn worker<R: Send + 'static, F: Future<Output = ()> + 'static>(
        first: impl FnOnce(Sender<R>) -> F + Send + 'static,
    ) -> Receiver<R> {
        let (sender, receiver) = channel();
        thread::spawn(move || Worker::new().unwrap().run(first(sender)));
        receiver
    }

    #[test]
    fn tasks_are_woken_by_others_and_from_elsewhere() {
        let (from_here, woken) = oneshot::channel();
        let reports = worker(|report| async move {
            let (to_other, other) = oneshot::channel();
            let told = report.clone();
            spawn(async move {
                told.send(other.await.unwrap()).unwrap();
            });
            let word: u32 = woken.await.unwrap();
            report.send(word).unwrap();
            to_other.send(word + 1).unwrap();
        });
        assert!(reports.recv_timeout(Duration::from_millis(50)).is_err());
        from_here.send(7).unwrap();
        assert_eq!([reports.recv_timeout(LONG).unwrap(), reports.recv_timeout(LONG).unwrap()], [7, 8]);
    }

    #[test]
    fn a_task_that_panics_ends_alone_and_leaves_its_place() {
        let reports = worker(|report| async move {
            for round in 0..3 {
                spawn(async move { assert!(round > 5, "a panic that the test wants") });
                tokio::task::yield_now().await;
            }
            let places = HERE.with(|here| here.get().unwrap().inside.borrow().places.len());
            report.send(places).unwrap();
        });
        assert!(reports.recv_timeout(LONG).unwrap() <= 3);
    }

    #[test]
    fn what_does_not_fit_is_sent_once_there_is_room() {
        const BYTES: usize = 8 << 20;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let reports = worker(|report| async move {
            let mut stream = Stream::watched(ours).unwrap();
            stream.write_all(&vec![7; BYTES]).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            report.send(answer).unwrap();
        });
        let (mut all, mut theirs) = (Vec::new(), theirs);
        std::io::Read::read_to_end(&mut theirs, &mut all).unwrap();
        assert_eq!(all.len(), BYTES);
        std::io::Write::write_all(&mut theirs, b"all").unwrap();
        drop(theirs);
        assert_eq!(reports.recv_timeout(LONG).unwrap(), b"all");
    }

    #[test]
    fn who_always_finds_something_leaves_room_for_others() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (stop, mut stopped) = oneshot::channel();
        let reports = worker(|report| async move {
            let stream = Stream::watched(ours).unwrap();
            let told = report.clone();
            spawn(async move {
                told.send("the other").unwrap();
                let _ = stop.send(());
            });
            // What is only looked at stays.
            while stopped.try_recv().is_err() {
                assert_eq!(stream.first_byte().await.unwrap(), Some(1));
            }
            report.send("the first").unwrap();
        });
        std::io::Write::write_all(&mut theirs, &[1]).unwrap();
        assert_eq!(reports.recv_timeout(LONG).unwrap(), "the other");
        assert_eq!(reports.recv_timeout(LONG).unwrap(), "the first");
    }

    #[test]
    fn connections_are_made_or_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, (close, closed)) = (listener.local_addr().unwrap(), oneshot::channel());
        let reports = worker(move |report| async move {
            let mut made = Stream::connect_tcp(address).await.unwrap();
            made.write_all(b"made").await.unwrap();
            closed.await.unwrap();
            report.send(Stream::connect_tcp(address).await.map_err(|error| error.kind()).unwrap_err()).unwrap();
        });
        let mut word = [0; 4];
        std::io::Read::read_exact(&mut listener.accept().unwrap().0, &mut word).unwrap();
        assert_eq!(&word, b"made");
        drop(listener);
        close.send(()).unwrap();
        assert_eq!(reports.recv_timeout(LONG).unwrap(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_number_that_is_free_again_is_given_to_another_socket() {
        let reports = worker(|report| async move {
            for byte in 0..100 {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                let stream = Stream::watched(ours).unwrap();
                std::io::Write::write_all(&mut theirs, &[byte]).unwrap();
                assert_eq!(stream.first_byte().await.unwrap(), Some(byte));
            }
            report.send(HERE.with(|here| here.get().unwrap().inside.borrow().sockets.len())).unwrap();
        });
        assert_eq!(reports.recv_timeout(LONG).unwrap(), 1);
    }

    #[test]
    fn sockets_rest_and_go_to_other_workers() {
        let (sender, receiver) = channel::<(Resting, UnixStream)>();
        let receiver = Arc::new(Mutex::new(receiver));
        let answer = |watched: Watched, mut theirs: UnixStream, byte| async move {
            // What came while it rested is found, too.
            let mut room = [0; 8];
            let early = std::future::poll_fn(|_| watched.receive(&mut room, RecvFlags::empty())).await.unwrap();
            assert_eq!(&room[..early], b"early");
            let late = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                std::io::Write::write_all(&mut theirs, &[byte]).unwrap();
                theirs
            });
            std::future::poll_fn(|_| watched.receive(&mut room, RecvFlags::empty())).await.unwrap();
            (room[0], watched, late.join().unwrap())
        };
        let first = worker(move |report| async move {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut resting = Watched::new(OwnedFd::from(ours).into()).unwrap().rest();
            for byte in 1..4 {
                std::io::Write::write_all(&mut theirs, b"early").unwrap();
                let (came, watched, back) = answer(resting.wake().unwrap(), theirs, byte).await;
                report.send(came).unwrap();
                (resting, theirs) = (watched.rest(), back);
            }
            sender.send((resting, theirs)).unwrap();
            // Its number is free again.
            while HERE.with(|here| here.get().unwrap().reach.left.lock().unwrap().is_empty()) {
                tokio::task::yield_now().await;
            }
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let _watched = Watched::new(OwnedFd::from(ours).into()).unwrap();
            report.send(HERE.with(|here| here.get().unwrap().inside.borrow().sockets.len()) as u8).unwrap();
        });
        let came: Vec<_> = (0..3).map(|_| first.recv_timeout(LONG).unwrap()).collect();
        let second = worker(move |report| async move {
            let (resting, mut theirs) = receiver.lock().unwrap().recv_timeout(LONG).unwrap();
            std::io::Write::write_all(&mut theirs, b"early").unwrap();
            let (came, ..) = answer(resting.wake().unwrap(), theirs, 9).await;
            report.send(came).unwrap();
        });
        assert_eq!(came, [1, 2, 3]);
        assert_eq!(second.recv_timeout(LONG).unwrap(), 9);
        assert_eq!(first.recv_timeout(LONG).unwrap(), 1);
    }
}
