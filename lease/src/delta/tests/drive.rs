//! A join driven by hand: what happens between one step and the next, which a driver may tell in either order.

use super::*;
use crate::delta::{JoinError, JoinOutcome};
use crate::machine::{Action, Env, Input, LockspaceNow, Machine, NoHosts, NoSectors, Op, Step};

/// A join, the disk it works on, and whether it is to stop.
pub(super) struct Hand {
    pub(super) lab: Lab,
    pub(super) join: DeltaAcquire,
    pub(super) stop: bool,
}

impl Hand {
    pub(super) fn new(lab: Lab) -> Self {
        Self { lab, join: DeltaAcquire::new(config(), None), stop: false }
    }

    pub(super) fn give(&mut self, input: Input<'_>) -> Step<JoinOutcome> {
        let lockspace = if self.stop { LockspaceNow::Gone } else { LockspaceNow::Alive { generation: 0 } };
        let env = Env { lockspace, client_alive: true, shutting_down: false, hosts: &NoHosts };
        self.join.step(self.lab.now, &env, input)
    }

    /// Does what the operation says and tells the machine.
    pub(super) fn complete(&mut self, op: &Op) -> Step<JoinOutcome> {
        match &op.action {
            Action::Read { first, count } => {
                let view = self.lab.disk.view(op.place, op.sector_size, *first, *count).unwrap();
                self.give(Input::Completed { op: op.id, result: Ok(&view) })
            }
            Action::Write { sector, content } => {
                let mut bytes = [0; 512];
                content.encode(&mut bytes);
                self.lab.disk.write(op.place, op.sector_size, *sector, &bytes);
                self.give(Input::Completed { op: op.id, result: Ok(&NoSectors) })
            }
        }
    }

    /// On until so many operations have been asked for; the last one is running then.
    pub(super) fn until_op(&mut self, number: usize) -> Op {
        let mut step = self.give(Input::Start);
        let mut ids = Vec::new();
        loop {
            match step {
                Step::Io(ops) => {
                    assert!(!ids.contains(&ops[0].id), "a number is used twice");
                    ids.push(ops[0].id);
                    if ids.len() == number {
                        return ops[0].clone();
                    }
                    step = self.complete(&ops[0]);
                }
                Step::Wait(until) => {
                    self.lab.now = until;
                    step = self.give(Input::Tick);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// On to the end of a wait, here until the settling time is over.
    pub(super) fn settle(&mut self, step: Step<JoinOutcome>) -> Step<JoinOutcome> {
        let Step::Wait(until) = step else { panic!("{step:?}") };
        self.lab.now = until;
        self.give(Input::Tick)
    }

    /// To the end; how many further operations that takes.
    pub(super) fn finish(&mut self, mut step: Step<JoinOutcome>) -> (JoinOutcome, usize) {
        for further in 0..10 {
            match step {
                Step::Io(ops) => step = self.complete(&ops[0]),
                Step::Done { outcome, .. } => return (outcome, further),
                other => panic!("{other:?}"),
            }
        }
        panic!("it does not stop");
    }
}

/// A lease that somebody else holds: the third operation is the first look during the wait, the 71st the last.
pub(super) fn taken() -> Lab {
    let mut lab = lab();
    edit(&mut lab, 1, held_by("beta", 1, 3, 500));
    lab
}

/// W33: whether a tick or the completion of what is running comes first, a join that is to stop starts nothing more than what frees
/// the lease again.
#[test]
fn a_join_stops_at_the_next_input_whatever_it_is() {
    let stopped = |freed| Err(JoinError::Stopped { freed });
    // Sizes, own sector; a look, the last look.
    for (number, lab) in [(1, lab as fn() -> Lab), (2, lab), (3, taken), (71, taken)] {
        for tick in [true, false] {
            let mut hand = Hand::new(lab());
            let op = hand.until_op(number);
            assert!(!op.is_write());
            hand.stop = true;
            let step = if tick { hand.give(Input::Tick) } else { hand.complete(&op) };
            assert_eq!(hand.finish(step), (stopped(true), 0), "operation {number}, tick {tick}");
        }
    }
    // While the write runs a tick changes nothing; then, when competitors have written too, the record is read, written free, and nothing of us is
    // left. The check that was running when the stop came is not waited for.
    for (number, tick, further) in [(3, false, 2), (4, true, 2), (4, false, 2)] {
        let mut hand = Hand::new(lab());
        let op = hand.until_op(number);
        assert_eq!(op.is_write(), number == 3);
        hand.stop = true;
        if number == 3 {
            assert_eq!(hand.give(Input::Tick), Step::Pending);
        }
        let mut step = if tick { hand.give(Input::Tick) } else { hand.complete(&op) };
        if number == 3 {
            step = hand.settle(step);
        }
        assert_eq!(hand.finish(step), (stopped(true), further), "operation {number}, tick {tick}");
        assert_eq!(record(&hand.lab, 1).timestamp.get(), 0);
    }
}

#[test]
fn a_join_that_waits_stops_at_the_tick() {
    // Before the first look, and in the short delay.
    for (lab, operations, further) in [(taken as fn() -> Lab, 2, 0), (lab, 3, 2)] {
        let mut hand = Hand::new(lab());
        let op = hand.until_op(operations);
        assert!(matches!(hand.complete(&op), Step::Wait(_)));
        hand.stop = true;
        let mut step = hand.give(Input::Tick);
        if further > 0 {
            step = hand.settle(step);
        }
        assert_eq!(hand.finish(step), (Err(JoinError::Stopped { freed: true }), further));
    }
    // Before anything was done at all.
    let mut hand = Hand::new(lab());
    hand.lab.now = MonoTime::from_millis(10);
    assert_eq!(hand.give(Input::Start), Step::Wait(secs(1)));
    hand.stop = true;
    let step = hand.give(Input::Tick);
    assert_eq!(hand.finish(step), (Err(JoinError::Stopped { freed: true }), 0));
}

/// A competitor with our host id that saw the same free record writes up to 1.9·O after that; the one that frees ours may hang, and land even
/// later. So it is not submitted before whoever writes last is known.
#[test]
fn a_stopped_join_frees_nothing_before_competitors_have_written() {
    for beta_takes in [false, true] {
        let mut hand = Hand::new(lab());
        let op = hand.until_op(3);
        let written = hand.lab.now;
        assert!(matches!(hand.complete(&op), Step::Wait(_)));
        hand.stop = true;
        for ms in [0, 1000, 1999] {
            hand.lab.now = written.plus_millis(ms);
            assert_eq!(hand.give(Input::Tick), Step::Wait(written.plus_secs(2)), "{ms} ms");
        }
        if beta_takes {
            edit(&mut hand.lab, 1, held_by("beta", 1, 1, 1001));
        }
        let before = record(&hand.lab, 1);
        hand.lab.now = written.plus_secs(2);
        let step = hand.give(Input::Tick);
        let further = if beta_takes { 1 } else { 2 };
        assert_eq!(hand.finish(step), (Err(JoinError::Stopped { freed: true }), further));
        assert_eq!(record(&hand.lab, 1) == before, beta_takes);
    }
}

/// What is still running when the join is to stop is not mistaken for the look that decides.
#[test]
fn a_check_under_way_when_a_join_stops_says_nothing() {
    let checking = |io_timeout| {
        let mut hand = Hand::new(lab_with(Geometry::B512_M1, io_timeout));
        let op = hand.until_op(4);
        assert!(!op.is_write());
        hand.stop = true;
        (hand, op)
    };
    let (mut hand, op) = checking(3);
    let end = hand.join.waiting_until().unwrap();
    assert_eq!(hand.lab.now.secs() + 4, end.secs(), "a check on the way");
    let step = hand.give(Input::Tick);
    assert_eq!(hand.complete(&op), Step::Pending);
    let step = hand.settle(step);
    assert_eq!(hand.lab.now, end);
    assert_eq!(hand.finish(step), (Err(JoinError::Stopped { freed: true }), 2));
    // By the end others may have judged it dead: nothing is waited for, neither then nor when the write ends.
    let mut hand = Hand::new(lab_with(Geometry::B512_M1, 4));
    let op = hand.until_op(3);
    hand.stop = true;
    let step = hand.complete(&op);
    assert_eq!(hand.finish(step), (Err(JoinError::Stopped { freed: false }), 0));
    for (io_timeout, waits) in [(3, true), (4, false), (10, false)] {
        let (mut hand, _) = checking(io_timeout);
        let step = hand.give(Input::Tick);
        assert_eq!(matches!(step, Step::Wait(_)), waits, "{io_timeout}");
        if !waits {
            assert_eq!(hand.finish(step), (Err(JoinError::Stopped { freed: false }), 0));
        }
    }
}

#[test]
fn a_join_is_started_once() {
    let driver = Step::Done { outcome: Err(JoinError::Driver), outstanding: 0 };
    let mut hand = Hand::new(lab());
    hand.until_op(2);
    assert_eq!(hand.give(Input::Start), driver);
    assert_eq!(hand.give(Input::Start), driver);
    // A write that timed out is told as outstanding until it completes.
    let mut hand = Hand::new(lab());
    let op = hand.until_op(3);
    assert!(matches!(hand.give(Input::TimedOut { op: op.id }), Step::Done { outstanding: 1, .. }));
    assert!(matches!(hand.give(Input::Start), Step::Done { outstanding: 1, .. }));
    assert_eq!(hand.give(Input::CompletedLate { op: op.id, result: Ok(&NoSectors) }), Step::Pending);
    assert_eq!(hand.give(Input::Start), driver);
}

/// What people are told who wait for a join.
#[test]
fn a_join_says_until_when_it_waits() {
    let mut hand = Hand::new(taken());
    assert_eq!(hand.join.waiting_until(), None);
    let op = hand.until_op(2);
    let first_look = hand.lab.now;
    assert_eq!(hand.join.waiting_until(), None);
    assert!(matches!(hand.complete(&op), Step::Wait(_)));
    // 8T + F, and one second of slack.
    assert_eq!(hand.join.waiting_until(), Some(first_look.plus_secs(69)));
    for operations in [3, 71] {
        let mut hand = Hand::new(taken());
        hand.until_op(operations);
        assert_eq!(hand.join.waiting_until(), Some(first_look.plus_secs(69)), "look {operations}");
    }
    let mut hand = Hand::new(lab());
    let op = hand.until_op(3);
    assert_eq!(hand.join.waiting_until(), None);
    assert!(matches!(hand.complete(&op), Step::Wait(_)));
    assert_eq!(hand.join.waiting_until(), Some(first_look.plus_secs(2)), "2T");
}

/// Lease-algorithms.md 2.3: the read after the whole wait decides. What changed after the look before it is a sign of life too.
#[test]
fn a_renewal_in_the_last_second_of_the_wait_is_seen() {
    let mut hand = Hand::new(taken());
    let op = hand.until_op(71);
    assert_eq!(hand.lab.now, secs(1069));
    edit(&mut hand.lab, 1, |leader| leader.timestamp = 501.into());
    let step = hand.complete(&op);
    assert_eq!(hand.finish(step), (Err(JoinError::Busy { owner: name("beta"), generation: 3 }), 0));
}

/// The settling time is 2·O, whatever our T; up to 4T of it is waited for in one piece.
#[test]
fn a_settling_time_of_4t_needs_no_renewal() {
    for (found, ours, writes) in [(2, 1, 1), (4, 2, 1), (3, 1, 2), (5, 2, 2)] {
        let mut lab = lab_with(Geometry::B512_M1, found);
        let config = DeltaConfig { io_timeout: timeout(ours), ..config() };
        let joined = lab.run_noisy(&mut DeltaAcquire::new(config, None)).outcome;
        assert!(joined.is_ok());
        let written = lab.trace.iter().filter(|traced| traced.op.is_write()).count();
        assert_eq!(written, writes, "O {found}, T {ours}");
    }
}
