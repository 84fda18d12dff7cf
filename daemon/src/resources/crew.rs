//! A duty that one thread has at a time, and that another takes over as soon as a call of the first one does not return.
//!
//! Calls that may block, an open or a write on storage that is silent, are best made by the thread that wants them: each change of
//! threads costs as much as the call itself. So the thread on duty makes them, without the lock of the duty. If it is away for
//! longer than [`AWAY_MAX`], the stand-by goes on with the duty; who comes back then finds the place taken and is the next stand-by,
//! or ends.
//!
//! # Invariants
//! - The duty belongs to whoever holds its lock. A thread on duty leaves it only for an errand, and only while there is a stand-by.
//! - Of a thread that comes back and the stand-by exactly one goes on: whoever first takes [`Watch::out`] away.
//! - At most one thread is stand-by.
//! - While a thread is out the timer is set, and expires before or when it has been away for too long. It is not set anew for each
//!   errand: the stand-by, when it looks too early, sets it for the rest.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use sanlock_blockio::Errand;

/// How long the thread on duty may be away.
const AWAY_MAX: Duration = Duration::from_millis(10);

/// Pause before a stand-by that cannot wait tries to again, which a correct program does not meet.
const TROUBLE: Duration = Duration::from_millis(100);

/// What is done on duty.
pub(super) trait Duty: Send + 'static {
    /// Waits until there is something to do, unless `back` from an errand, whose end is to be looked at; and does it without ever
    /// blocking on anything else. What may block is returned, if `may_leave`; otherwise the duty finds other threads for it.
    fn turn(&mut self, back: bool, may_leave: bool) -> Option<Errand>;
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
    /// Whether the timer is set and has not been seen to expire.
    timer_set: bool,
}

/// See the module.
struct Crew<D> {
    duty: Mutex<D>,
    watch: Mutex<Watch>,
    /// Wakes the stand-by, to look whether the thread on duty has been away for too long.
    timer: TimerFd,
    name: &'static str,
    stack: usize,
}

/// Starts the threads that have this duty, for good.
///
/// # Errors
/// No thread or descriptor is to be had.
pub(super) fn start<D: Duty>(duty: D, name: &'static str, stack: usize) -> io::Result<()> {
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
    let crew =
        Arc::new(Crew { duty: Mutex::new(duty), watch: Mutex::new(Watch::default()), timer, name, stack });
    crew.spawn(Crew::serve)
}

impl<D: Duty> Crew<D> {
    fn spawn(self: &Arc<Self>, body: fn(&Arc<Self>)) -> io::Result<()> {
        let crew = Arc::clone(self);
        std::thread::Builder::new()
            .name(self.name.to_owned())
            .stack_size(self.stack)
            .spawn(move || body(&crew))
            .map(drop)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Body of a thread that is on duty from the beginning.
    fn serve(self: &Arc<Self>) {
        loop {
            self.on_duty();
            if std::mem::replace(&mut self.watch().stand_by, true) {
                return;
            }
            self.wait();
        }
    }

    /// Body of a thread that begins as the stand-by.
    fn relieve(self: &Arc<Self>) {
        self.wait();
        self.serve();
    }

    /// Returns when somebody else has taken over.
    fn on_duty(self: &Arc<Self>) {
        let mut back = false;
        loop {
            // A panic in a turn has ended that thread with the lock: then nobody may go on with what it left half done.
            let Ok(mut duty) = self.duty.lock() else { return };
            let errand = loop {
                let may_leave = self.has_stand_by();
                if let Some(errand) = duty.turn(std::mem::take(&mut back), may_leave) {
                    break errand;
                }
            };
            drop(duty);
            let number = self.leave();
            errand.run();
            if !self.come_back(number) {
                return;
            }
            back = true;
        }
    }

    fn has_stand_by(self: &Arc<Self>) -> bool {
        if std::mem::replace(&mut self.watch().stand_by, true) {
            return true;
        }
        // Without the lock, which who comes back needs: a thread may be long in coming. Meanwhile the place is taken: who comes back ends.
        let spawned = self.spawn(Self::relieve).is_ok();
        if !spawned {
            self.watch().stand_by = false;
        }
        spawned
    }

    fn leave(&self) -> u64 {
        let mut watch = self.watch();
        watch.errands += 1;
        let number = watch.errands;
        watch.out = Some(Out { number, since: Instant::now() });
        if !watch.timer_set {
            self.set_timer(&mut watch, AWAY_MAX);
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

    /// As the stand-by: returns when the duty is this thread's.
    fn wait(&self) {
        loop {
            if self.timer.wait().is_err() {
                std::thread::sleep(TROUBLE);
            }
            let mut watch = self.watch();
            watch.timer_set = false;
            let Some(out) = watch.out else { continue };
            let rest = AWAY_MAX.saturating_sub(out.since.elapsed());
            if rest.is_zero() {
                watch.out = None;
                watch.stand_by = false;
                return;
            }
            self.set_timer(&mut watch, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{self, ThreadId};
    use std::time::Instant;

    /// What a test waits for at most.
    const PATIENT: Duration = Duration::from_secs(20);

    /// Each order is an errand, or nothing but a turn.
    struct Orders {
        inbox: Receiver<Option<Errand>>,
        turns: Sender<(ThreadId, bool)>,
    }

    impl Duty for Orders {
        fn turn(&mut self, _back: bool, may_leave: bool) -> Option<Errand> {
            let Ok(order) = self.inbox.recv() else {
                // The test has ended.
                loop {
                    thread::park();
                }
            };
            let _ = self.turns.send((thread::current().id(), may_leave));
            order
        }
    }

    struct Team {
        orders: Sender<Option<Errand>>,
        turns: Receiver<(ThreadId, bool)>,
    }

    impl Team {
        fn new(name: &'static str) -> Self {
            let (orders, inbox) = channel();
            let (turns_seen, turns) = channel();
            start(Orders { inbox, turns: turns_seen }, name, 128 * 1024).unwrap();
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
        drop(away);
        // Who comes back to a place that is taken ends.
        come_to(NAME, 2);
        team.order(None);
    }

    /// Who comes back and the stand-by meet, again and again: two on duty would run one order's turn beside the other's errand and then wait
    /// for the lock, none would leave an order unheard.
    #[test]
    fn of_who_comes_back_and_the_stand_by_one_goes_on() {
        const NAME: &str = "crew-meet";
        let team = Team::new(NAME);
        for round in 0..80_u64 {
            let about = AWAY_MAX + Duration::from_micros(round * 25) - Duration::from_millis(1);
            team.order(Some(Errand::new(move || thread::sleep(about))));
        }
        for _ in 0..20 {
            team.order(None);
        }
        assert!(team.turns.recv_timeout(Duration::from_millis(50)).is_err(), "one turn for each order");
        come_to(NAME, 2);
    }
}
