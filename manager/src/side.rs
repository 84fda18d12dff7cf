//! The resources of one command, worked on side by side, with the outcome that one after the other would have (decision 0016).
//!
//! # Acquiring
//!
//! * The first resource is begun alone, so that of two hosts that want the same ones one gets them all.
//! * Of the others up to [`SIDE_BY_SIDE_MAX`] run at a time, only one where [`TASKS_MANY`] tasks are under way.
//! * A refusal that comes before everything earlier in the request is acquired says nothing yet: the resource is asked for again
//!   when it is its turn, and that refusal counts. So nobody is refused for what an earlier resource would have waited for, and a
//!   resource that a request names twice is found held. Until then nothing behind it is begun: as a rule it is refused again.
//! * The first failure in the order of the request is the result. What comes before it goes on, for it may fail too; nothing
//!   behind it is begun, and what runs there is told to stop.
//!
//! A resource waits for earlier ones of its own request only, so requests never wait for one another.
//!
//! # Releasing
//!
//! In order, as many at a time. The last failure in the order of the request is the result, or the reason of an undo.

use crate::event::ResourceRequest;
use crate::ids::{LockspaceId, ResourceId, TaskId};
use sanlock_lease::name::Name;
use std::collections::BTreeMap;

/// Resources of one command that are worked on at a time.
pub(crate) const SIDE_BY_SIDE_MAX: usize = 8;
/// Tasks under way from which on a command has only one of its own at a time: storage that is this busy gains nothing.
pub(crate) const TASKS_MANY: usize = 64;

#[cfg(test)]
thread_local! {
    /// What random tests on this thread have instead of [`SIDE_BY_SIDE_MAX`], which is more than their requests name.
    pub(crate) static SIDE_BY_SIDE: std::cell::Cell<usize> = const { std::cell::Cell::new(SIDE_BY_SIDE_MAX) };
}

fn side_by_side() -> usize {
    #[cfg(test)]
    return SIDE_BY_SIDE.get();
    #[cfg(not(test))]
    SIDE_BY_SIDE_MAX
}

fn may_run(running: usize, tasks: usize) -> bool {
    running < if tasks < TASKS_MANY { side_by_side() } else { 1 }
}

/// How far one resource of an acquire has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// Not begun; `again`: refused once, before it was its turn.
    Waiting {
        again: bool,
    },
    /// It waits for the watchdog of its lockspace.
    Arming(LockspaceId),
    Running(TaskId),
    Acquired(ResourceId),
    Failed(i32),
}

/// The resources of an acquire, in the order of the request.
#[derive(Clone, Debug)]
pub(crate) struct Takings(Vec<(ResourceRequest, Taking)>);

/// What an acquire has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) acquired: Vec<ResourceId>,
    /// The first failure.
    pub(crate) failure: Option<i32>,
}

impl Takings {
    pub(crate) fn new(requests: Vec<ResourceRequest>) -> Self {
        Self(requests.into_iter().map(|request| (request, Taking::Waiting { again: false })).collect())
    }

    fn states(&self) -> impl Iterator<Item = Taking> + '_ {
        self.0.iter().map(|(_, state)| *state)
    }

    /// Where the first failure is; without one, the end.
    fn bound(&self) -> usize {
        self.states().position(|s| matches!(s, Taking::Failed(_))).unwrap_or(self.0.len())
    }

    /// Whether it is its turn: everything before it is acquired.
    fn is_turn(&self, at: usize) -> bool {
        self.states().take(at).all(|s| matches!(s, Taking::Acquired(_)))
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.states().filter_map(|s| match s {
            Taking::Running(task) => Some(task),
            _ => None,
        })
    }

    /// The lockspaces whose watchdog it waits for.
    pub(crate) fn arming(&self) -> impl Iterator<Item = LockspaceId> + '_ {
        self.states().filter_map(|s| match s {
            Taking::Arming(ls) => Some(ls),
            _ => None,
        })
    }

    /// Whether it has still to begin with a resource of this lockspace.
    pub(crate) fn waits_for(&self, lockspace: &Name) -> bool {
        let left = self.0.iter().take(self.bound());
        let begins = |state: Taking| matches!(state, Taking::Waiting { .. } | Taking::Arming(_));
        left.into_iter().any(|(request, state)| begins(*state) && request.spec.lockspace == *lockspace)
    }

    pub(crate) fn acquired(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.states().filter_map(|s| match s {
            Taking::Acquired(id) => Some(id),
            _ => None,
        })
    }

    /// The resource to begin with now, and where it stands. `tasks`: how many are under way on this host.
    pub(crate) fn next(&self, tasks: usize) -> Option<(usize, &ResourceRequest)> {
        let bound = self.bound();
        let refused = self.states().position(|s| s == Taking::Waiting { again: true }).unwrap_or(bound);
        let first = matches!(self.states().next(), Some(Taking::Acquired(_)));
        let beside = first && may_run(self.running().count(), tasks);
        let may_begin = |at: usize, state: Taking| {
            matches!(state, Taking::Waiting { .. }) && ((beside && at < refused) || self.is_turn(at))
        };
        let mut all = self.0.iter().enumerate().take(bound);
        all.find(|(at, (_, state))| may_begin(*at, *state)).map(|(at, (request, _))| (at, request))
    }

    pub(crate) fn set(&mut self, at: usize, to: Taking) {
        if let Some((_, state)) = self.0.get_mut(at) {
            *state = to;
        }
    }

    /// What this task was to acquire is acquired, or was refused.
    pub(crate) fn place_of(&self, task: TaskId) -> Option<usize> {
        self.states().position(|s| s == Taking::Running(task))
    }

    /// One was not acquired. `again`: it may be asked for again when it is its turn. The tasks to be told to stop.
    pub(crate) fn refuse(&mut self, at: usize, code: i32, again: bool) -> Vec<TaskId> {
        let before = self.bound();
        if at < before && again && !self.is_turn(at) {
            self.set(at, Taking::Waiting { again: true });
            return Vec::new();
        }
        self.set(at, Taking::Failed(code));
        let mut stopped = Vec::new();
        for (_, state) in self.0.iter_mut().take(before).skip(at + 1) {
            match *state {
                Taking::Running(task) => stopped.push(task),
                Taking::Arming(_) => *state = Taking::Waiting { again: false },
                Taking::Waiting { .. } | Taking::Acquired(_) | Taking::Failed(_) => {}
            }
        }
        stopped
    }

    /// The watchdog of a lockspace is armed, or will not be. Whether this changes anything, and the tasks to be told to stop.
    pub(crate) fn armed(&mut self, ls: LockspaceId, refused: Option<i32>) -> (bool, Vec<TaskId>) {
        let (mut any, mut stopped) = (false, Vec::new());
        for at in 0..self.0.len() {
            if !matches!(self.0.get(at), Some((_, Taking::Arming(l))) if *l == ls) {
                continue;
            }
            any = true;
            match refused {
                Some(code) => stopped.extend(self.refuse(at, code, false)),
                None => self.set(at, Taking::Waiting { again: false }),
            }
        }
        (any, stopped)
    }

    /// What it has come to, once nothing is left to wait for.
    pub(crate) fn outcome(&self) -> Option<Taken> {
        let bound = self.bound();
        let open = self.states().enumerate().any(|(at, state)| match state {
            Taking::Waiting { .. } | Taking::Arming(_) => at < bound,
            Taking::Running(_) => true,
            Taking::Acquired(_) | Taking::Failed(_) => false,
        });
        let failure = self.states().find_map(|s| match s {
            Taking::Failed(code) => Some(code),
            _ => None,
        });
        (!open).then(|| Taken { acquired: self.acquired().collect(), failure })
    }
}

/// How far one resource of a release has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Giving {
    Waiting,
    Running,
    Done(i32),
}

/// The resources of a release, in the order of the request.
#[derive(Clone, Debug)]
pub(crate) struct Givings {
    all: Vec<(ResourceId, Giving)>,
    /// The result if none fails.
    result: i32,
    /// The result is the reason of an undo, and stays.
    undo: bool,
}

impl Givings {
    /// A command's, with the result that it has already.
    pub(crate) fn new(all: impl IntoIterator<Item = ResourceId>, result: i32) -> Self {
        Self { all: all.into_iter().map(|id| (id, Giving::Waiting)).collect(), result, undo: false }
    }

    /// What a request had acquired that fails for this reason.
    pub(crate) fn undo(all: impl IntoIterator<Item = ResourceId>, reason: i32) -> Self {
        Self { undo: true, ..Self::new(all, reason) }
    }

    #[cfg(test)]
    pub(crate) fn running(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.all.iter().filter(|(_, state)| *state == Giving::Running).map(|(id, _)| *id)
    }

    /// Those that wait for their turn.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (usize, ResourceId)> + '_ {
        let all = self.all.iter().enumerate();
        all.filter(|(_, (_, state))| *state == Giving::Waiting).map(|(at, (id, _))| (at, *id))
    }

    /// The next one to begin with.
    pub(crate) fn next(&self, tasks: usize) -> Option<(usize, ResourceId)> {
        let running = self.all.iter().filter(|(_, state)| *state == Giving::Running).count();
        if !may_run(running, tasks) {
            return None;
        }
        let at = self.all.iter().position(|(_, state)| *state == Giving::Waiting)?;
        self.all.get(at).map(|(id, _)| (at, *id))
    }

    pub(crate) fn begun(&mut self, at: usize) {
        if let Some((_, state)) = self.all.get_mut(at) {
            *state = Giving::Running;
        }
    }

    /// This one needs no task.
    pub(crate) fn done(&mut self, at: usize, code: i32) {
        if let Some((_, state)) = self.all.get_mut(at) {
            *state = Giving::Done(code);
        }
    }

    /// So many of each resource, those that wait first, need no task.
    pub(crate) fn done_at_once(&mut self, mut of_each: BTreeMap<ResourceId, usize>) {
        for (id, state) in self.all.iter_mut().filter(|(_, state)| *state == Giving::Waiting) {
            if let Some(left) = of_each.get_mut(id).filter(|left| **left > 0) {
                *left -= 1;
                *state = Giving::Done(0);
            }
        }
    }

    /// The release that ran for this resource has ended.
    pub(crate) fn ended(&mut self, id: ResourceId, code: i32) {
        if let Some(at) = self.all.iter().position(|(i, state)| *i == id && *state == Giving::Running) {
            self.done(at, code);
        }
    }

    /// The result, once nothing is left to do.
    pub(crate) fn outcome(&self) -> Option<i32> {
        let mut result = self.result;
        for (_, state) in &self.all {
            match *state {
                Giving::Waiting | Giving::Running => return None,
                Giving::Done(code) if code != 0 && !self.undo => result = code,
                Giving::Done(_) => {}
            }
        }
        Some(result)
    }
}
