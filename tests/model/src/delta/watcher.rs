//! The third host: it looks at all host ids, and wants the resource.

use super::world::{Area, Shared};
use crate::disk::{Contents, Resource, host_id};
use sanlock_lease::delta::HostScan;
use sanlock_lease::machine::{
    Action, Content, Env, Input, LockspaceNow, Machine, NoHosts, NoSectors, Op, OpId, Place, Step,
};
use sanlock_lease::paxos::PaxosAcquire;
use sanlock_lease::paxos::acquire::AcquireOutcome;
use sanlock_lease::timing::MonoTime;

/// The watcher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Watcher {
    pub(super) scan: HostScan,
    pub(super) next_scan: MonoTime,
    pub(super) acquire: Option<Box<PaxosAcquire>>,
    pub(super) wake: Option<MonoTime>,
    pub(super) holds: bool,
    /// It has had its try.
    pub(super) tried: bool,
}

impl Watcher {
    /// Looks at every host at once.
    pub(super) fn look(&mut self, now: MonoTime, area: &Area<'_>) {
        let env =
            Env { lockspace: LockspaceNow::Gone, client_alive: true, shutting_down: false, hosts: &NoHosts };
        let mut step = self.scan.step(now, &env, Input::Start);
        while let Step::Io(ops) = step {
            let Some(op) = ops.first() else { break };
            let Action::Read { first, count } = op.action else { break };
            let view = area.range(first, count);
            step = self.scan.step(now, &env, Input::Completed { op: op.id, result: Ok(&view) });
        }
    }
}

/// What became of an acquire that ran as far as it could.
pub(super) enum Ran {
    Waits(MonoTime),
    Acquired,
    Failed,
}

/// Runs an acquire of the resource until it waits or ends; every operation takes no time.
pub(super) fn run(
    machine: &mut PaxosAcquire,
    (now, env): (MonoTime, &Env<'_>),
    input: Input<'_>,
    shared: &Shared<'_>,
    contents: &mut Contents,
    resource: &mut Resource,
) -> Ran {
    let mut step = machine.step(now, env, input);
    let mut todo: Vec<Op> = Vec::new();
    loop {
        match step {
            Step::Io(ops) => todo.extend(ops),
            Step::Wait(until) => return Ran::Waits(until),
            Step::Pending => {}
            Step::Done { outcome: AcquireOutcome::Acquired(_), .. } => return Ran::Acquired,
            Step::Done { .. } => return Ran::Failed,
        }
        if todo.is_empty() {
            return Ran::Failed;
        }
        let op = todo.remove(0);
        step = one(machine, (now, env), &op, shared, contents, resource);
    }
}

fn one(
    machine: &mut PaxosAcquire,
    (now, env): (MonoTime, &Env<'_>),
    Op { id, place, action, .. }: &Op,
    shared: &Shared<'_>,
    contents: &mut Contents,
    resource: &mut Resource,
) -> Step<AcquireOutcome> {
    let done = |machine: &mut PaxosAcquire, id: OpId, view: sanlock_lease::machine::View<'_>| {
        machine.step(now, env, Input::Completed { op: id, result: Ok(view) })
    };
    match (place, action) {
        (Place::Lockspace, Action::Read { first, count }) => {
            done(machine, *id, &shared.area(contents).range(*first, *count))
        }
        (Place::Resource(_), Action::Read { first, count }) => {
            done(machine, *id, &resource.view(contents, *first, *count))
        }
        (_, Action::Write { sector, content }) => {
            if matches!(content, Content::Leader(_) | Content::Block(_)) {
                resource.land(*sector, contents.number(content));
            }
            done(machine, *id, &NoSectors)
        }
    }
}

/// The host id that is claimed.
pub(super) const CLAIMED: usize = 0;
/// The watcher's.
pub(super) const WATCHER: usize = 1;

pub(super) fn sector_of(index: usize) -> u64 {
    host_id(index).delta_sector()
}
