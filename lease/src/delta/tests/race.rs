//! Properties under random latencies, faults and orders of events.

use super::*;
use crate::delta::JoinOutcome;
use crate::delta::{RenewOutcome, Renewal};
use crate::limits::SECTOR_BYTES_MAX;
use crate::machine::{
    Action, Content, Env, Input, IoFailure, LockspaceNow, Machine, NoHosts, NoSectors, Op, OpId, Sectors,
    Step,
};
use crate::testing::{Fate, TestDisk};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

/// What is still to happen, to one of two joining machines.
enum Due {
    Start,
    Tick,
    Lands(Op),
    Completes(Op),
    Deadline(OpId),
}

/// Two hosts that were given the same host id join at almost the same time.
struct Race {
    disk: TestDisk,
    machines: [DeltaAcquire; 2],
    /// Operations that have neither completed nor timed out, or that timed out.
    running: Vec<(usize, OpId)>,
    late: Vec<(usize, OpId)>,
    due: Vec<(MonoTime, usize, Due)>,
    latency: Vec<u64>,
    ended: [Option<(MonoTime, JoinOutcome)>; 2],
}

impl Race {
    fn input(&mut self, now: MonoTime, who: usize, input: Input<'_>) {
        let env = Env {
            lockspace: LockspaceNow::Alive { generation: 0 },
            client_alive: true,
            shutting_down: false,
            hosts: &NoHosts,
        };
        match self.machines[who].step(now, &env, input) {
            Step::Io(ops) => {
                for op in ops {
                    // Latencies repeat when the list is used up.
                    let ms = self.latency.remove(0);
                    self.latency.push(ms);
                    self.running.push((who, op.id));
                    if op.is_write() {
                        self.due.push((now.plus_millis(ms), who, Due::Lands(op.clone())));
                    }
                    self.due.push((now.plus_millis(ms), who, Due::Completes(op.clone())));
                    self.due.push((op.deadline, who, Due::Deadline(op.id)));
                }
            }
            Step::Wait(until) => self.due.push((until, who, Due::Tick)),
            Step::Pending => {}
            Step::Done { outcome, .. } => {
                let first = self.ended[who].replace((now, outcome)).is_none();
                assert!(first, "done twice");
            }
        }
    }

    fn take(list: &mut Vec<(usize, OpId)>, who: usize, op: OpId) -> bool {
        let before = list.len();
        list.retain(|r| *r != (who, op));
        list.len() < before
    }

    fn run(&mut self) {
        // The first of those that are due first: the order of submission.
        while let Some(at) = (0..self.due.len()).min_by_key(|i| (self.due[*i].0, *i)) {
            let (now, who, due) = self.due.remove(at);
            match due {
                Due::Start => self.input(now, who, Input::Start),
                Due::Tick if self.ended[who].is_none() => self.input(now, who, Input::Tick),
                Due::Tick => {}
                Due::Lands(op) => {
                    let Action::Write { sector, content } = op.action else { unreachable!() };
                    let mut bytes = [0; SECTOR_BYTES_MAX];
                    content.encode(&mut bytes[..512]);
                    self.disk.write(op.place, op.sector_size, sector, &bytes[..512]);
                }
                Due::Completes(op) => {
                    let view = match op.action {
                        Action::Read { first, count } => {
                            self.disk.view(op.place, op.sector_size, first, count)
                        }
                        Action::Write { .. } => None,
                    };
                    let view: &dyn Sectors = view.as_ref().map_or(&NoSectors, |v| v);
                    if Self::take(&mut self.running, who, op.id) {
                        self.input(now, who, Input::Completed { op: op.id, result: Ok(view) });
                    } else if Self::take(&mut self.late, who, op.id) {
                        self.input(now, who, Input::CompletedLate { op: op.id, result: Ok(view) });
                    }
                }
                Due::Deadline(op) => {
                    if Self::take(&mut self.running, who, op) {
                        self.late.push((who, op));
                        self.input(now, who, Input::TimedOut { op });
                    }
                }
            }
        }
    }
}

/// The timestamp of the last write that began at this time, 0 without one. It is that time's second, or the one after that of the write before.
fn said_at(lab: &Lab, at: MonoTime) -> u64 {
    let (mut said, mut before) = (0, 0);
    for traced in &lab.trace {
        let Action::Write { content: Content::Delta { leader, .. }, .. } = &traced.op.action else {
            continue;
        };
        let timestamp = leader.timestamp.get();
        assert!(timestamp == traced.at.secs() || timestamp == before + 1, "{timestamp} at {:?}", traced.at);
        if traced.at == at {
            said = timestamp;
        }
        before = timestamp;
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// lease-algorithms.md S8, for joins: nobody renews here, so the second may succeed only after the dead time.
    #[test]
    fn of_two_joins_under_one_host_id_at_most_one_succeeds(
        offset in 0..5000_u64,
        latency in prop::collection::vec(prop_oneof![1..50_u64, 1..1000_u64, 900..4000_u64], 1..24),
        held: bool,
    ) {
        let mut lab = lab();
        if held {
            edit(&mut lab, 1, held_by("gone", 1, 3, 500));
        }
        let machine = |who: &str| {
            DeltaAcquire::new(DeltaConfig { host_name: name(who), ..config() }, None)
        };
        let start = secs(100);
        let mut race = Race {
            disk: lab.disk.clone(),
            machines: [machine("alpha"), machine("beta")],
            running: Vec::new(),
            late: Vec::new(),
            due: vec![(start, 0, Due::Start), (start.plus_millis(offset), 1, Due::Start)],
            latency,
            ended: [None, None],
        };
        race.run();
        let [Some(a), Some(b)] = race.ended else { panic!("a join does not end") };
        if let (Ok(joined_a), Ok(joined_b)) = (a.1, b.1) {
            let (first, second) = (a.0.min(b.0), a.0.max(b.0));
            prop_assert!(second.secs_since(first) > 60, "{:?} and {:?}", a, b);
            prop_assert_ne!(joined_a.generation(), joined_b.generation());
        }
    }

    /// Any latencies and failures: never two writes in flight, never a renewal that is not on disk, never a foreign code.
    #[test]
    fn renewals_survive_every_mixture_of_faults(
        fates in prop::collection::vec(
            (
                prop_oneof![Just(Some(1)), (1..900_u64).prop_map(Some), (900..5000_u64).prop_map(Some),
                    (60_000..90_000_u64).prop_map(Some), Just(None)],
                prop::option::weighted(0.2, Just(IoFailure::Os(5))),
                any::<bool>(),
            ),
            1..30,
        ),
        pauses in prop::collection::vec(0..40_u64, 20),
    ) {
        let mut lab = lab();
        let joined = join(&mut lab);
        lab.trace.clear();
        let mut renewal = Renewal::new(config(), &joined);
        lab.another_machine();
        let given: Rc<RefCell<Vec<Fate>>> = Rc::default();
        let note = Rc::clone(&given);
        let mut next = 0;
        lab.fates(move |_| {
            let (after_ms, failure, lands) = fates[next % fates.len()];
            next += 1;
            let lands = lands || failure.is_none();
            let fate = Fate { after_ms, failure, lands_ms: after_ms.filter(|_| lands), ..Fate::never() };
            note.borrow_mut().push(fate);
            fate
        });
        for pause in pauses {
            lab.now = lab.now.max(renewal.due());
            let before = renewal.last_good();
            let outcome = lab.rerun(&mut renewal).outcome;
            prop_assert!(!matches!(outcome, RenewOutcome::Corrupt(_)), "{:?}", outcome);
            prop_assert!(renewal.last_good() >= before);
            if matches!(outcome, RenewOutcome::Renewed(_)) {
                // What was written within the second of an earlier record says a later one.
                let said = record(&lab, 1).timestamp.get();
                prop_assert_eq!(said, said_at(&lab, renewal.last_good()));
                prop_assert!(said >= renewal.last_good().secs());
            }
            lab.pass(&mut renewal, pause);
        }
        let given = given.borrow();
        let mut free_at = MonoTime::default();
        let mut good = vec![joined.last_good];
        for (traced, fate) in lab.trace.iter().zip(given.iter()) {
            if traced.op.is_write() {
                prop_assert!(traced.at >= free_at, "two writes in flight");
                free_at = fate.after_ms.map_or(MonoTime::from_secs(u64::MAX / 1000), |ms| traced.at.plus_millis(ms));
                if fate.failure.is_none() && free_at <= lab.now {
                    good.push(traced.at);
                }
            }
        }
        prop_assert_eq!(Some(&renewal.last_good()), good.iter().max());
    }
}
