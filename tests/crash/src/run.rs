//! The driver: one machine, a virtual clock, and the disks as they would be had the host died.

use crate::disk::{Areas, Disks};
use crate::torn::{Write, combinations};
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::machine::{
    Action, Content, Env, HostView, Input, IoFailure, LockspaceNow, Machine, NoSectors, Op, Sectors, Step,
};
use sanlock_lease::timing::MonoTime;
use std::collections::{BTreeSet, VecDeque};

/// Inputs after which a machine is taken for endless: bounded progress.
const INPUTS_MAX: u32 = 20_000;

/// A write as a machine asked for it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The operation.
    pub op: Op,
    /// When.
    pub at: MonoTime,
}

impl Asked {
    /// What it writes.
    #[must_use]
    pub fn content(&self) -> &Content {
        match &self.op.action {
            Action::Write { content, .. } => content,
            Action::Read { .. } => unreachable!("only writes are kept"),
        }
    }
}

/// Disks on which a host died, and when.
#[derive(Clone, Debug)]
pub struct Crash {
    /// The disks.
    pub disks: Disks,
    /// The moment.
    pub at: MonoTime,
    /// Number of the submission it died at, from 1; the writes of several disks that go side by side are one.
    pub point: usize,
}

/// Collects what a crash may leave.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Different disks, in the order in which they come up.
    pub crashes: Vec<Crash>,
    /// Everything written by machines.
    pub asked: Vec<Asked>,
    /// Submissions with writes.
    pub points: usize,
    known: BTreeSet<Disks>,
}

impl Recorder {
    /// The host dies with these writes in flight.
    pub fn submitted(&mut self, disks: &Disks, flying: &[Write], at: MonoTime) {
        self.points += 1;
        for disks in combinations(disks, flying) {
            if self.known.insert(disks.clone()) {
                self.crashes.push(Crash { disks, at, point: self.points });
            }
        }
    }
}

/// Looks at an operation before it takes effect: another host may do something, and the operation may fail.
pub type Between<'a> = dyn FnMut(&Op, &mut Disks) -> Option<IoFailure> + 'a;

/// What one machine runs with.
pub struct Run<'a, 'b> {
    /// The disks.
    pub disks: &'a mut Disks,
    /// Its areas.
    pub areas: &'a Areas,
    /// The clock; every round of operations takes a millisecond.
    pub now: &'a mut MonoTime,
    /// The generation of our host id.
    pub generation: u64,
    /// What our renewals have seen.
    pub hosts: &'a dyn HostView,
    /// Where crashes are collected.
    pub recorder: Option<&'a mut Recorder>,
    /// What happens before an operation takes effect.
    pub between: Option<&'a mut Between<'b>>,
}

impl Run<'_, '_> {
    /// Runs a machine to its end.
    ///
    /// # Panics
    /// It does not end, waits for nothing, writes outside its area, or leaves a write outstanding although none timed out.
    pub fn drive<M: Machine>(&mut self, machine: &mut M) -> M::Outcome {
        let mut flying: VecDeque<Op> = VecDeque::new();
        let mut wait = None;
        let mut step = machine.step(*self.now, &self.env(), Input::Start);
        for _ in 0..INPUTS_MAX {
            match step {
                Step::Done { outcome, outstanding } => {
                    assert_eq!(outstanding, 0, "nothing timed out");
                    return outcome;
                }
                Step::Io(ops) => {
                    wait = None;
                    let writes = ops.iter().any(Op::is_write);
                    ops.iter().for_each(|op| self.check_range(op));
                    flying.extend(ops);
                    if writes {
                        self.submitted(&flying);
                    }
                    *self.now = self.now.plus_millis(1);
                }
                Step::Wait(until) => wait = Some(until),
                Step::Pending => {}
            }
            step = match (flying.pop_front(), wait) {
                (Some(op), _) => self.complete(machine, &op),
                (None, Some(until)) => {
                    *self.now = (*self.now).max(until);
                    machine.step(*self.now, &self.env(), Input::Tick)
                }
                (None, None) => panic!("the machine waits for nothing"),
            };
        }
        panic!("the machine does not end");
    }

    fn env(&self) -> Env<'_> {
        Env {
            lockspace: LockspaceNow::Alive { generation: self.generation },
            client_alive: true,
            shutting_down: false,
            hosts: self.hosts,
        }
    }

    /// Property S15.
    fn check_range(&self, op: &Op) {
        let area = self.areas.at(op.place);
        let last = match op.action {
            Action::Read { first, count } => first + count,
            Action::Write { sector, .. } => sector + 1,
        };
        assert!(last * u64::from(op.sector_size.bytes()) <= area.bytes, "{op:?} leaves its area");
    }

    fn write_of(&self, op: &Op) -> Option<Write> {
        let Action::Write { sector, content } = &op.action else { return None };
        let mut bytes = vec![0xa5; SECTOR_BYTES_MAX];
        bytes.truncate(op.sector_size.slice_len());
        content.encode(&mut bytes);
        let area = self.areas.at(op.place);
        Some(Write {
            disk: area.disk,
            offset: area.offset + sector * u64::from(op.sector_size.bytes()),
            bytes,
        })
    }

    fn submitted(&mut self, flying: &VecDeque<Op>) {
        let writes: Vec<Write> = flying.iter().filter_map(|op| self.write_of(op)).collect();
        if let Some(recorder) = &mut self.recorder {
            let at = *self.now;
            recorder.submitted(self.disks, &writes, at);
            recorder
                .asked
                .extend(flying.iter().filter(|op| op.is_write()).map(|op| Asked { op: op.clone(), at }));
        }
    }

    fn complete<M: Machine>(&mut self, machine: &mut M, op: &Op) -> Step<M::Outcome> {
        let failure = match &mut self.between {
            Some(between) => between(op, self.disks),
            None => None,
        };
        let view = match (&op.action, failure) {
            (_, Some(failure)) => Err(failure),
            (Action::Write { .. }, None) => {
                if let Some(write) = self.write_of(op) {
                    write.apply(self.disks);
                }
                Ok(None)
            }
            (Action::Read { first, count }, None) => self
                .disks
                .view(self.areas.at(op.place), op.sector_size, *first, *count)
                .map(Some)
                .ok_or(IoFailure::Short),
        };
        let result: Result<&dyn Sectors, IoFailure> = match &view {
            Ok(Some(view)) => Ok(view),
            Ok(None) => Ok(&NoSectors),
            Err(failure) => Err(*failure),
        };
        machine.step(*self.now, &self.env(), Input::Completed { op: op.id, result })
    }
}
