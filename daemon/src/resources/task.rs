//! The machines of tasks, and what they may know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sanlock_blockio::drive::{EnvSource, monotonic_now};
use sanlock_lease::geometry::HostId;
use sanlock_lease::hosts::HostTable;
use sanlock_lease::machine::{Env, HostView, Input, Machine, NoHosts, Step};
use sanlock_lease::paxos::convert::ConvertOutcome;
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::take::Taken;
use sanlock_lease::paxos::{PaxosConvert, PaxosRelease, PaxosTake};
use sanlock_lease::timing::MonoTime;
use sanlock_manager::TaskId;

use crate::global::Global;
use crate::lockspace;

/// A machine of a task.
pub(super) enum TaskMachine {
    Take(Box<PaxosTake>),
    Convert(Box<PaxosConvert>),
    /// A release or a retract.
    Release(Box<PaxosRelease>),
}

/// What it comes to.
pub(super) enum Outcome {
    Take(Taken),
    Convert(ConvertOutcome),
    Release(ReleaseOutcome),
}

impl Machine for TaskMachine {
    type Outcome = Outcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<Outcome> {
        match self {
            Self::Take(machine) => machine.step(now, env, input).map(Outcome::Take),
            Self::Convert(machine) => machine.step(now, env, input).map(Outcome::Convert),
            Self::Release(machine) => machine.step(now, env, input).map(Outcome::Release),
        }
    }
}

/// What belongs to a task besides its machine.
#[derive(Debug)]
pub(super) struct Tag {
    pub(super) task: TaskId,
    pub(super) lockspace: Arc<lockspace::Shared>,
    pub(super) client_gone: AtomicBool,
}

impl Tag {
    pub(super) fn set_client_gone(&self) {
        self.client_gone.store(true, Ordering::SeqCst);
    }
}

/// Answers from what other threads publish, as of the moment of the step.
pub(super) struct Envs {
    pub(super) global: Arc<Global>,
}

/// What the renewals of a lockspace have seen.
pub(crate) struct Hosts(pub(crate) Option<Arc<HostTable>>);

impl HostView for Hosts {
    fn seen(&self, host: HostId) -> Option<sanlock_lease::hosts::HostSeen> {
        self.0.as_ref().map_or_else(|| NoHosts.seen(host), |table| table.seen(host))
    }
}

impl EnvSource<Arc<Tag>> for Envs {
    fn with_env<R>(&self, tag: &Arc<Tag>, now: MonoTime, step: impl FnOnce(&Env<'_>) -> R) -> R {
        let hosts = Hosts(tag.lockspace.hosts());
        step(&Env {
            // Several steps are made with one look at the clock; this thread may stand still between them.
            lockspace: tag.lockspace.state(monotonic_now().max(now)),
            client_alive: !tag.client_gone.load(Ordering::SeqCst),
            shutting_down: self.global.shutting_down(),
            hosts: &hosts,
        })
    }
}
