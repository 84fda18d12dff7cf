//! Scripted schedules: each machine does exactly as many operations as the script lets it, and a write can be held back.
//!
//! No kernel, no chance: time stands still unless the script moves it, and every operation takes effect when it is let through.

use crate::disk::{Area, SimDisk};
use crate::faults::EIO;
use crate::layout;
use sanlock_lease::geometry::HostId;
use sanlock_lease::hosts::HostSeen;
use sanlock_lease::machine::{
    Action, Env, HostView, Input, IoFailure, LockspaceNow, Machine, NoSectors, Op, Place, Sectors, Step,
};
use sanlock_lease::record::RawLeader;
use sanlock_lease::timing::{IoTimeout, MonoTime};
use std::collections::VecDeque;

/// Steps after which a machine is taken for endless.
const STEPS_MAX: u32 = 100_000;

/// A disk with one resource, and the time.
#[derive(Debug)]
pub struct Stage {
    /// The disk.
    pub disk: SimDisk,
    /// Everybody's clock.
    pub now: MonoTime,
    /// How long ago, as far as everybody's table knows, everybody else was last seen to renew. 0: the last look saw it.
    pub silent_secs: u64,
    /// What everybody's table has of the host id leases, if nobody has looked since.
    looked: Option<SimDisk>,
}

/// A machine on the stage, with what its host knows.
#[derive(Debug)]
pub struct Actor<M: Machine> {
    machine: M,
    /// Given to the machine with every step.
    pub lockspace: LockspaceNow,
    pending: VecDeque<Op>,
    wait: Option<MonoTime>,
    /// Its outcome, and the writes it says are outstanding.
    pub done: Option<(M::Outcome, u32)>,
    /// Sectors of the resource it wrote, in order of submission.
    pub written: Vec<u64>,
}

/// What everybody's table says.
#[derive(Debug)]
struct Everybody(Vec<HostSeen>);

impl HostView for Everybody {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        self.0.get(host.index()).copied()
    }
}

impl<M: Machine> Actor<M> {
    /// The machine, to be asked.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Takes its next operation away if that is a write.
    pub fn take_write(&mut self) -> Option<Op> {
        if self.pending.front().is_some_and(Op::is_write) { self.pending.pop_front() } else { None }
    }
}

impl Stage {
    /// A free resource at version 0, and this many hosts, joined with generation 1.
    #[must_use]
    pub fn new(hosts: u64) -> Self {
        let mut stage = Self {
            disk: layout::formatted(hosts, 1, 1, 1, hosts, layout::GEOMETRY),
            now: MonoTime::from_secs(1000),
            silent_secs: 0,
            looked: None,
        };
        for id in 1..=hosts {
            stage.join(id, 1);
        }
        stage
    }

    /// The host's delta lease shows this generation, renewed now.
    pub fn join(&mut self, id: u64, generation: u64) {
        let host = layout::host_id(id);
        let mut delta = layout::free_delta(0);
        delta.owner_id = id.into();
        delta.owner_generation = generation.into();
        delta.resource_name = layout::name(&format!("machine-{id}")).to_field();
        delta.timestamp = self.now.secs().into();
        delta.io_timeout = IoTimeout::DEFAULT.to_disk().into();
        delta.seal();
        let content = sanlock_lease::machine::Content::Leader(delta);
        self.disk.land(Area::Lockspace(0), host.delta_sector(), &content);
    }

    /// The host's delta lease is free.
    pub fn leave(&mut self, id: u64, generation: u64) {
        self.join(id, generation);
        let host = layout::host_id(id);
        let mut delta = layout::delta_on(&self.disk, 0, host);
        delta.timestamp = 0.into();
        delta.seal();
        let content = sanlock_lease::machine::Content::Leader(delta);
        self.disk.land(Area::Lockspace(0), host.delta_sector(), &content);
    }

    /// The same, last held by an instance with this io timeout.
    pub fn leave_with(&mut self, id: u64, generation: u64, io_timeout: IoTimeout) {
        self.leave(id, generation);
        let host = layout::host_id(id);
        let mut delta = layout::delta_on(&self.disk, 0, host);
        delta.io_timeout = io_timeout.to_disk().into();
        delta.seal();
        let content = sanlock_lease::machine::Content::Leader(delta);
        self.disk.land(Area::Lockspace(0), host.delta_sector(), &content);
    }

    /// A record lands in the host's sector of the lockspace.
    pub fn land_delta(&mut self, id: u64, leader: RawLeader) {
        let content = sanlock_lease::machine::Content::Leader(leader);
        self.disk.land(Area::Lockspace(0), layout::host_id(id).delta_sector(), &content);
    }

    /// Everybody's table is as of now, and stays so: nobody looks any more.
    pub fn last_look(&mut self) {
        self.looked = Some(self.disk.clone());
    }

    fn table(&self) -> Everybody {
        let entry = |id| {
            let delta = layout::delta_on(self.looked.as_ref().unwrap_or(&self.disk), 0, layout::host_id(id));
            HostSeen {
                first_check: MonoTime::from_secs(1),
                last_check: MonoTime::from_secs(self.now.secs()),
                last_live: Some(MonoTime::from_secs(self.now.secs().saturating_sub(self.silent_secs))),
                owner_id: delta.owner_id.get(),
                owner_generation: delta.owner_generation.get(),
                timestamp: delta.timestamp.get(),
                io_timeout: IoTimeout::DEFAULT,
                newest_generation: delta.owner_generation.get(),
            }
        };
        Everybody((1..=16).map(entry).collect())
    }

    fn tell<M: Machine>(&self, actor: &mut Actor<M>, input: Input<'_>) {
        let table = self.table();
        let env = Env { lockspace: actor.lockspace, client_alive: true, shutting_down: false, hosts: &table };
        match actor.machine.step(self.now, &env, input) {
            Step::Io(ops) => {
                let writes = ops.iter().filter_map(|op| match op.action {
                    Action::Write { sector, .. } if op.place != Place::Lockspace => Some(sector),
                    _ => None,
                });
                actor.written.extend(writes);
                actor.wait = None;
                actor.pending.extend(ops);
            }
            Step::Wait(until) => actor.wait = Some(until),
            Step::Pending => {}
            Step::Done { outcome, outstanding } => {
                actor.wait = None;
                actor.done = Some((outcome, outstanding));
            }
        }
    }

    /// A machine takes the stage.
    pub fn enter<M: Machine>(&self, machine: M, generation: u64) -> Actor<M> {
        let mut actor = Actor {
            machine,
            lockspace: LockspaceNow::Alive { generation },
            pending: VecDeque::new(),
            wait: None,
            done: None,
            written: Vec::new(),
        };
        self.tell(&mut actor, Input::Start);
        actor
    }

    fn area(op: &Op) -> Area {
        match op.place {
            Place::Lockspace => Area::Lockspace(0),
            Place::Resource(_) => Area::Resource(0, 0),
        }
    }

    /// Lets one operation of the actor take effect and complete; if it has none, time moves to what it waits for.
    ///
    /// # Panics
    /// It has nothing to do.
    pub fn one<M: Machine>(&mut self, actor: &mut Actor<M>) {
        if let Some(op) = actor.pending.pop_front() {
            match op.action {
                Action::Read { first, count } => {
                    let view = self.disk.view(Self::area(&op), first, count);
                    self.tell(actor, Input::Completed { op: op.id, result: Ok(&view as &dyn Sectors) });
                }
                Action::Write { .. } => {
                    self.land(&op);
                    self.tell(actor, Input::Completed { op: op.id, result: Ok(&NoSectors) });
                }
            }
            return;
        }
        match actor.wait {
            Some(until) => {
                self.now = self.now.max(until);
                self.tell(actor, Input::Tick);
            }
            None => panic!("nothing to do"),
        }
    }

    /// Lets the actor go on until it is about to write this sector of the resource for the n-th time from now (from 1).
    ///
    /// # Panics
    /// It never does.
    pub fn up_to_write<M: Machine>(&mut self, actor: &mut Actor<M>, sector: u64, mut n: u32) {
        for _ in 0..STEPS_MAX {
            let next = actor.pending.front().map(|op| op.action.clone());
            if matches!(next, Some(Action::Write { sector: s, .. }) if s == sector) {
                n -= 1;
                if n == 0 {
                    return;
                }
            }
            self.one(actor);
        }
        panic!("it never writes sector {sector}");
    }

    /// Lets the actor go on to its end.
    ///
    /// # Panics
    /// There is none.
    pub fn to_end<'a, M: Machine>(&mut self, actor: &'a mut Actor<M>) -> &'a M::Outcome {
        for _ in 0..STEPS_MAX {
            if actor.done.is_some() {
                break;
            }
            self.one(actor);
        }
        match &actor.done {
            Some((outcome, _)) => outcome,
            None => panic!("no end"),
        }
    }

    /// Lets the actor take this many steps, or fewer if it ends.
    pub fn steps<M: Machine>(&mut self, actor: &mut Actor<M>, count: u32) {
        for _ in 0..count {
            if actor.done.is_none() {
                self.one(actor);
            }
        }
    }

    /// The actor's next operation does not complete in time; it is returned, to land later or never.
    ///
    /// # Panics
    /// There is no next operation.
    pub fn time_out<M: Machine>(&mut self, actor: &mut Actor<M>) -> Op {
        match actor.pending.pop_front() {
            Some(op) => {
                self.now = self.now.max(op.deadline);
                self.tell(actor, Input::TimedOut { op: op.id });
                op
            }
            None => panic!("no operation"),
        }
    }

    /// A write lands.
    pub fn land(&mut self, op: &Op) {
        if let Action::Write { sector, content } = &op.action {
            self.disk.land(Self::area(op), *sector, content);
        }
    }

    /// Tells the actor that an operation it was relieved of has completed in time.
    pub fn completed<M: Machine>(&self, actor: &mut Actor<M>, op: &Op) {
        self.tell(actor, Input::Completed { op: op.id, result: Ok(&NoSectors) });
    }

    /// Tells the actor that a write it was relieved of has failed, in a way that leaves open whether it takes effect (A7).
    pub fn doubtful<M: Machine>(&self, actor: &mut Actor<M>, op: &Op) {
        self.tell(actor, Input::Doubtful { op: op.id, failure: IoFailure::Os(EIO) });
    }

    /// A machine that has ended begins once more.
    pub fn again<M: Machine>(&self, actor: &mut Actor<M>) {
        actor.done = None;
        self.tell(actor, Input::Start);
    }

    /// Tells the actor that a held back operation has completed after all.
    pub fn completed_late<M: Machine>(&self, actor: &mut Actor<M>, op: &Op) {
        self.tell(actor, Input::CompletedLate { op: op.id, result: Ok(&NoSectors) });
    }
}
