//! A duty that one thread has at a time, and that another takes over as soon as a call of the first one does not return.
//!
//! Calls that may block, an open or a write on storage that is silent, are best made by the thread that wants them: each change of
//! threads costs as much as the call itself. So the thread on duty makes them, without the lock of the duty. If it is away for
//! longer than [`Style::away`], the stand-by goes on with the duty; who comes back then finds the place taken and is the next stand-by,
//! or ends.
//!
//! # Invariants
//! - The duty belongs to whoever holds its lock. A thread on duty leaves it only for an errand, and without a stand-by only if none is to be
//!   had and the duty wants it all the same. Then the first thread that comes back from an earlier errand relieves it.
//! - Of a thread that comes back and the stand-by exactly one goes on: whoever first takes [`Watch::out`] away.
//! - At most one thread is stand-by. While one is being started who comes back waits for what comes of that: it is the stand-by if there is no
//!   thread to be had.
//! - While a thread is out the timer is set, and expires before or when it has been away for too long. It is not set anew for each
//!   errand: the stand-by, when it looks too early, sets it for the rest.
//! - When the duty is over, whoever ended it has it for itself, the stand-by ends at once, and who comes back later ends too.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use sanlock_blockio::Errand;

/// Pause before a stand-by that cannot wait tries to again, which a correct program does not meet.
const TROUBLE: Duration = Duration::from_millis(100);

/// The shortest time for which a timer can be set.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// What comes after a turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Another one.
    Again,
    /// This call, which may block. Then a turn.
    Errand(Errand),
    /// [`Duty::rest`]. Then a turn.
    Rest,
    /// Nothing: [`Duty::over`].
    Over,
}

/// What is done on duty.
pub(crate) trait Duty: Send + 'static {
    /// Does what there is to do, without ever blocking; a duty that never rests waits here, unless the thread is `fresh`: back from an errand, whose
    /// end is to be looked at, or new on duty, when it is to do what the one who is away was about to do. Only if `may_leave` somebody goes on soon when an errand hangs; otherwise the duty finds other threads for what may
    /// block, and returns an errand only if there are none and it would rather wait than not have the call made.
    fn turn(&mut self, fresh: bool, may_leave: bool) -> Turn;

    /// Waits until there is something to do.
    fn rest(&mut self) {}

    /// What is left to do when the duty is over. May block.
    fn over(self);
}

/// An errand that the thread on duty is out on.
#[derive(Clone, Copy, Debug)]
struct Out {
    number: u64,
    since: Instant,
}

#[derive(Debug, Default)]
struct Watch {
    out: Option<Out>,
    errands: u64,
    stand_by: bool,
    /// Whether that place is taken by a thread that is being started.
    seeking: bool,
    /// Whether the timer is set and has not been seen to expire.
    timer_set: bool,
    /// Whether there is nothing to stand by for any more.
    over: bool,
}

/// Starts a detached thread; tests have one that finds none to start.
type Hire = fn(&str, usize, Box<dyn FnOnce() + Send>) -> io::Result<()>;

fn hire(name: &str, stack: usize, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    sanlock_sys::thread::spawn(name, stack, body)
}

/// What the threads of a crew have in common.
pub(crate) struct Style {
    /// Their name.
    pub(crate) name: String,
    /// Bytes of their stacks.
    pub(crate) stack: usize,
    /// How long the one on duty may be away.
    pub(crate) away: Duration,
    /// What each does first.
    pub(crate) prepare: Box<dyn Fn() + Send + Sync>,
    /// How they are started.
    pub(crate) hire: Hire,
}

impl Style {
    /// Threads that need no preparation.
    pub(crate) fn plain(name: &str, stack: usize, away: Duration) -> Self {
        Self { name: name.to_owned(), stack, away, prepare: Box::new(|| ()), hire }
    }
}

/// See the module.
struct Crew<D> {
    /// `None` when it is over.
    duty: Mutex<Option<D>>,
    watch: Mutex<Watch>,
    /// Tells that [`Watch::seeking`] is over.
    sought: Condvar,
    /// Wakes the stand-by, to look whether the thread on duty has been away for too long.
    timer: TimerFd,
    style: Style,
}

/// A duty with threads to come.
pub(crate) struct Station(TimerFd);

impl Station {
    /// Gets what it takes.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?))
    }

    fn crew<D: Duty>(self, duty: D, style: Style) -> Arc<Crew<D>> {
        let (duty, watch) = (Mutex::new(Some(duty)), Mutex::new(Watch::default()));
        Arc::new(Crew { duty, watch, sought: Condvar::new(), timer: self.0, style })
    }

    /// Starts a thread that has this duty.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(crate) fn start<D: Duty>(self, duty: D, style: Style) -> io::Result<()> {
        self.crew(duty, style).spawn(Crew::serve)
    }

    /// Gives the duty to the calling thread. Returns when it is over, or when others have it: this thread has nothing to do with it
    /// any more then.
    pub(crate) fn serve<D: Duty>(self, duty: D, style: Style) {
        self.crew(duty, style).serve();
    }
}

impl<D: Duty> Crew<D> {
    fn spawn(self: &Arc<Self>, body: fn(&Arc<Self>)) -> io::Result<()> {
        let crew = Arc::clone(self);
        let run = move || {
            (crew.style.prepare)();
            body(&crew);
        };
        (self.style.hire)(&self.style.name, self.style.stack, Box::new(run))
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Body of a thread that is on duty from the beginning.
    fn serve(self: &Arc<Self>) {
        loop {
            if let Some(duty) = self.on_duty() {
                self.dismiss();
                return duty.over();
            }
            let mut watch = self.watch();
            while watch.seeking {
                watch = self.sought.wait(watch).unwrap_or_else(PoisonError::into_inner);
            }
            if watch.over || std::mem::replace(&mut watch.stand_by, true) {
                return;
            }
            drop(watch);
            if !self.wait() {
                return;
            }
        }
    }

    /// Body of a thread that begins as the stand-by.
    fn relieve(self: &Arc<Self>) {
        if self.wait() {
            self.serve();
        }
    }

    /// Returns the duty when it is over, and nothing when somebody else has taken it over.
    fn on_duty(self: &Arc<Self>) -> Option<D> {
        let mut fresh = true;
        loop {
            // A panic in a turn has ended that thread with the lock: then nobody may go on with what it left half done.
            let Ok(mut place) = self.duty.lock() else { return None };
            let errand = loop {
                let duty = place.as_mut()?;
                let may_leave = self.has_stand_by();
                match duty.turn(std::mem::take(&mut fresh), may_leave) {
                    Turn::Again => {}
                    Turn::Errand(errand) => break errand,
                    Turn::Rest => {
                        self.sleep_well();
                        duty.rest();
                    }
                    Turn::Over => return place.take(),
                }
            };
            drop(place);
            let number = self.leave();
            errand.run();
            if !self.come_back(number) {
                return None;
            }
            fresh = true;
        }
    }

    fn has_stand_by(self: &Arc<Self>) -> bool {
        {
            let mut watch = self.watch();
            if std::mem::replace(&mut watch.stand_by, true) {
                return true;
            }
            watch.seeking = true;
        }
        // Without the lock, which others need: a thread may be long in coming.
        let found = self.spawn(Self::relieve).is_ok();
        let mut watch = self.watch();
        (watch.stand_by, watch.seeking) = (found, false);
        self.sought.notify_all();
        found
    }

    /// The stand-by need not look until the next errand.
    fn sleep_well(&self) {
        let mut watch = self.watch();
        if std::mem::take(&mut watch.timer_set) {
            // If it cannot be unset, the stand-by looks in vain.
            let _ = self.timer.unset();
        }
    }

    /// The stand-by ends.
    fn dismiss(&self) {
        let mut watch = self.watch();
        watch.over = true;
        self.set_timer(&mut watch, AT_ONCE);
    }

    fn leave(&self) -> u64 {
        let mut watch = self.watch();
        watch.errands += 1;
        let number = watch.errands;
        watch.out = Some(Out { number, since: Instant::now() });
        if !watch.timer_set {
            self.set_timer(&mut watch, self.style.away);
        }
        number
    }

    /// Whether the thread that was out on this errand is still on duty.
    fn come_back(&self, errand: u64) -> bool {
        self.watch().out.take_if(|out| out.number == errand).is_some()
    }

    fn set_timer(&self, watch: &mut Watch, after: Duration) {
        let once = Expiration::OneShot(TimeSpec::from_duration(after));
        // It is a valid time for a valid timer. Should it fail all the same, the stand-by would not come, and what is done here would
        // wait for the errand.
        watch.timer_set = self.timer.set(once, TimerSetTimeFlags::empty()).is_ok();
    }

    /// As the stand-by: whether the duty is this thread's; otherwise it is over.
    fn wait(&self) -> bool {
        loop {
            if self.timer.wait().is_err() {
                thread::sleep(TROUBLE);
            }
            let mut watch = self.watch();
            watch.timer_set = false;
            if watch.over {
                return false;
            }
            let Some(out) = watch.out else { continue };
            let rest = self.style.away.saturating_sub(out.since.elapsed());
            if rest.is_zero() {
                watch.out = None;
                watch.stand_by = false;
                return true;
            }
            self.set_timer(&mut watch, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;
    use std::time::Instant;

    /// How long one may be away.
    const AWAY: Duration = Duration::from_millis(10);

    /// What a test waits for at most.
    const PATIENT: Duration = Duration::from_secs(20);

    /// Each order is an errand, or nothing but a turn.
    struct Orders {
        inbox: Receiver<Option<Errand>>,
        turns: Sender<(ThreadId, bool)>,
    }

    impl Duty for Orders {
        fn turn(&mut self, _fresh: bool, may_leave: bool) -> Turn {
            let Ok(order) = self.inbox.recv() else { return Turn::Over };
            let _ = self.turns.send((thread::current().id(), may_leave));
            order.map_or(Turn::Again, Turn::Errand)
        }

        fn over(self) {}
    }

    struct Team {
        orders: Sender<Option<Errand>>,
        turns: Receiver<(ThreadId, bool)>,
    }

    impl Team {
        fn new(name: &'static str) -> Self {
            let (orders, inbox) = channel();
            let (turns_seen, turns) = channel();
            let style = Style::plain(name, 128 * 1024, AWAY);
            Station::new().unwrap().start(Orders { inbox, turns: turns_seen }, style).unwrap();
            Self { orders, turns }
        }

        /// Who took the order. There was a stand-by.
        fn order(&self, errand: Option<Errand>) -> ThreadId {
            self.orders.send(errand).unwrap();
            let (who, may_leave) = self.turns.recv_timeout(PATIENT).unwrap();
            assert!(may_leave);
            who
        }
    }

    /// An errand that lasts until the sender is used or dropped.
    fn stuck() -> (Sender<()>, Errand) {
        let (end, wait) = channel();
        let errand = Errand::new(move || {
            let _ = wait.recv();
        });
        (end, errand)
    }

    fn threads_of(name: &str) -> usize {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|comm| comm.trim_end() == name)
            .count()
    }

    fn come_to(name: &str, count: usize) {
        let begin = Instant::now();
        while threads_of(name) != count {
            assert!(begin.elapsed() < PATIENT, "{} threads, not {count}", threads_of(name));
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn who_is_on_duty_makes_the_call() {
        let team = Team::new("crew-quick");
        let (seen, caller) = channel();
        for _ in 0..50 {
            let seen = seen.clone();
            let who = team.order(Some(Errand::new(move || seen.send(thread::current().id()).unwrap())));
            assert_eq!(caller.recv_timeout(PATIENT).unwrap(), who);
        }
    }

    #[test]
    fn a_call_that_does_not_return_leaves_the_duty_to_another() {
        const NAME: &str = "crew-stuck";
        let team = Team::new(NAME);
        let mut away = Vec::new();
        for _ in 0..8 {
            // The timer is set for this one, and has to be set anew for the next.
            team.order(Some(Errand::new(|| ())));
            let (end, errand) = stuck();
            let out = team.order(Some(errand));
            assert!(away.iter().all(|(_, earlier)| *earlier != out), "that one is away");
            away.push((end, out));
        }
        team.order(None);
        // Eight that are away, one on duty, one stand-by. (A thread has its name when it first runs.)
        come_to(NAME, 10);
        let last = away.pop();
        drop(away);
        // Who comes back to a place that is taken ends.
        come_to(NAME, 3);
        team.order(None);
        drop(team);
        // The duty is over: only who is away is left, until it comes back.
        come_to(NAME, 1);
        drop(last);
        come_to(NAME, 0);
    }

    /// Tells which of its turns were those of somebody fresh.
    struct Telling {
        errands: Receiver<Errand>,
        turns: Sender<bool>,
    }

    impl Duty for Telling {
        fn turn(&mut self, fresh: bool, _: bool) -> Turn {
            let _ = self.turns.send(fresh);
            if fresh {
                return Turn::Again;
            }
            self.errands.recv().map_or(Turn::Over, Turn::Errand)
        }

        fn over(self) {}
    }

    #[test]
    fn who_takes_over_looks_before_it_waits() {
        let (orders, errands) = channel();
        let (turns, seen) = channel();
        let style = Style::plain("crew-fresh", 128 * 1024, AWAY);
        Station::new().unwrap().start(Telling { errands, turns }, style).unwrap();
        let turn = || seen.recv_timeout(PATIENT).unwrap();
        assert_eq!((turn(), turn()), (true, false));
        for _ in 0..3 {
            let (end, errand) = stuck();
            orders.send(errand).unwrap();
            assert_eq!((turn(), turn()), (true, false), "somebody else goes on");
            drop(end);
        }
    }

    /// Rests between its errands, each of which lasts; ends after some.
    struct Shifts {
        left: u32,
        away: Duration,
        rested: bool,
        out_since: Option<Instant>,
        longest: Duration,
        ended: Sender<(ThreadId, Duration)>,
    }

    impl Duty for Shifts {
        fn turn(&mut self, fresh: bool, may_leave: bool) -> Turn {
            assert!(may_leave);
            if let Some(since) = self.out_since.take() {
                self.longest = self.longest.max(since.elapsed());
            }
            if fresh || !std::mem::replace(&mut self.rested, false) {
                return Turn::Rest;
            }
            if self.left == 0 {
                return Turn::Over;
            }
            self.left -= 1;
            let away = self.away;
            self.out_since = Some(Instant::now());
            Turn::Errand(Errand::new(move || thread::sleep(away)))
        }

        fn rest(&mut self) {
            thread::sleep(AWAY * 2);
            self.rested = true;
        }

        fn over(self) {
            self.ended.send((thread::current().id(), self.longest)).unwrap();
        }
    }

    /// How the duty went.
    struct Shown {
        /// Whether it ended with the thread that began it.
        same: bool,
        /// The longest time until the turn after an errand.
        longest: Duration,
        took: Duration,
    }

    fn shifts(name: &'static str, away: Duration) -> Shown {
        let (ended, end) = channel();
        let longest = Duration::ZERO;
        let duty = Shifts { left: 10, away, rested: false, out_since: None, longest, ended };
        let begin = Instant::now();
        let serving = thread::spawn(move || {
            Station::new().unwrap().serve(duty, Style::plain(name, 128 * 1024, AWAY));
        });
        let first = serving.thread().id();
        let (last, longest) = end.recv_timeout(PATIENT).unwrap();
        let took = begin.elapsed();
        come_to(name, 0);
        serving.join().unwrap();
        Shown { same: last == first, longest, took }
    }

    #[test]
    fn who_serves_has_the_duty_to_its_end_if_nothing_hangs() {
        let Shown { same, longest, .. } = shifts("crew-shifts", Duration::from_millis(1));
        assert!(same || longest >= AWAY, "relieved after {longest:?}");
    }

    #[test]
    fn the_timer_that_was_taken_back_is_set_for_the_next_errand() {
        let Shown { took, longest, .. } = shifts("crew-rests", AWAY * 6);
        assert!(longest >= AWAY, "relieved after {longest:?}");
        // Each errand is given up after a sixth of its time.
        assert!(took < 10 * (AWAY * 2 + AWAY * 6), "{took:?}");
    }

    /// Starts the first two threads of a crew: who is on duty, and the first stand-by.
    fn hire_two(name: &str, stack: usize, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        static LEFT: AtomicUsize = AtomicUsize::new(2);
        let count = |left: usize| left.checked_sub(1);
        match LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(_) => hire(name, stack, body),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        }
    }

    #[test]
    fn where_no_thread_is_to_be_had_calls_are_made_and_who_comes_back_relieves_who_is_out() {
        const NAME: &str = "crew-lonely";
        let (orders, inbox) = channel();
        let (turns_seen, turns) = channel();
        let style = Style { hire: hire_two, ..Style::plain(NAME, 128 * 1024, AWAY) };
        Station::new().unwrap().start(Orders { inbox, turns: turns_seen }, style).unwrap();
        let order = |errand| {
            orders.send(errand).unwrap();
            turns.recv_timeout(PATIENT).unwrap()
        };
        let (end_first, errand) = stuck();
        let (first, may_leave) = order(Some(errand));
        assert!(may_leave);
        // The stand-by goes on, and nobody is to be had to relieve it.
        let (seen, made) = channel();
        let (second, may_leave) = order(Some(Errand::new(move || seen.send(()).unwrap())));
        assert!(second != first && !may_leave);
        made.recv_timeout(PATIENT).unwrap();
        let (end_second, errand) = stuck();
        assert_eq!(order(Some(errand)), (second, false));
        thread::sleep(AWAY * 3);
        end_first.send(()).unwrap();
        assert_eq!(order(None), (first, false), "who has come back goes on");
        end_second.send(()).unwrap();
        let end = Instant::now() + PATIENT;
        while order(None) != (first, true) {
            assert!(Instant::now() < end, "the other one comes back, and is the stand-by");
        }
        drop(orders);
        come_to(NAME, 0);
    }

    /// Who comes back and the stand-by meet, again and again: two on duty would run one order's turn beside the other's errand and then wait
    /// for the lock, none would leave an order unheard.
    #[test]
    fn of_who_comes_back_and_the_stand_by_one_goes_on() {
        const NAME: &str = "crew-meet";
        let team = Team::new(NAME);
        for round in 0..80_u64 {
            let about = AWAY + Duration::from_micros(round * 25) - Duration::from_millis(1);
            team.order(Some(Errand::new(move || thread::sleep(about))));
        }
        for _ in 0..20 {
            team.order(None);
        }
        assert!(team.turns.recv_timeout(Duration::from_millis(50)).is_err(), "one turn for each order");
        come_to(NAME, 2);
    }
}
