//! A host's operations: how they are submitted, what they see or write and when, how they end, and how the machine is told.

use crate::disk::{self, Resource};
use crate::host::{Ended, Late, Peeked, Pending, Running};
use crate::settings::Plan;
use crate::turn::{BROKE_HOST_ID, BROKE_PLACE, Told, Turn};
use sanlock_lease::machine::{
    Action, Content, Input, IoFailure, NoSectors, Op, OpId, Place, SliceView, View,
};
use sanlock_sim::layout;

const EIO: i32 = 5;

impl Turn<'_> {
    /// The operation on a disk takes effect (a write has landed by now).
    pub fn complete(&mut self, disk: u8, nth: u8) {
        self.let_go();
        self.own_block();
        let seen = self.around.disks[usize::from(disk)];
        self.end(disk, nth, |what| match what {
            Pending::Read { first, count, peeked } => {
                let mut seen = seen;
                seen.leader = peeked.leader.unwrap_or(seen.leader);
                for (block, peeked) in seen.blocks.iter_mut().zip(peeked.blocks) {
                    *block = peeked.unwrap_or(*block);
                }
                Ended::Saw(seen.only(first, count))
            }
            Pending::ReadDelta { .. } => Ended::SawDelta,
            Pending::Write { .. } => Ended::Written,
        });
    }

    fn end(&mut self, disk: u8, nth: u8, ended: impl FnOnce(Pending) -> Ended) {
        let running = self.host.running.iter_mut().find(|r| r.is(disk, nth));
        if let Some(running) = running {
            running.ended = Some(ended(running.what));
            self.tell_of_all();
        }
    }

    /// Tells the machine of everything, once everything has ended. What was late and has settled comes first: the machine must know
    /// that before it goes on.
    fn tell_of_all(&mut self) {
        if self.host.running.is_empty() || self.host.running.iter().any(|r| r.ended.is_none()) {
            return;
        }
        let mut all = std::mem::take(&mut self.host.running);
        if self.settings.told_backwards {
            all.reverse();
        }
        all.sort_by_key(|r| !matches!(r.ended, Some(Ended::Settled { .. })));
        let mut told = Told::Pending;
        for running in &all {
            assert!(matches!(told, Told::Pending), "a machine went on before everything had ended");
            told = self.tell_of(running);
        }
        self.follow(told);
    }

    fn tell_of(&mut self, running: &Running) -> Told {
        let op = running.op;
        let ok: Result<View<'_>, IoFailure> = Ok(&NoSectors);
        match (running.ended, running.what) {
            (Some(Ended::Saw(seen)), Pending::Read { first, count, .. }) => {
                self.step_read(op, seen, first, count)
            }
            (Some(Ended::SawDelta), Pending::ReadDelta { host }) => {
                let sector = self.around.lives.delta_sector(host, self.host.now, self.settings.twist);
                let view = SliceView {
                    first: disk::host_id(host).delta_sector(),
                    size: layout::GEOMETRY.sector(),
                    bytes: &sector,
                };
                self.step(Input::Completed { op, result: Ok(&view) })
            }
            (Some(Ended::Written), _) => self.step(Input::Completed { op, result: ok }),
            (Some(Ended::TimedOut), _) => self.step(Input::TimedOut { op }),
            (Some(Ended::Settled { landed }), _) => {
                let result = if landed { ok } else { Err(IoFailure::Os(EIO)) };
                // Another one has ended after it, so the machine does not go on yet.
                let _pending = self.step(Input::TimedOut { op });
                self.step(Input::CompletedLate { op, result })
            }
            _ => self.step(Input::Completed { op, result: Err(IoFailure::Os(EIO)) }),
        }
    }

    /// The moment of one sector of the submitted read: 0 the leader, from 1 on the hosts' blocks.
    pub fn peek(&mut self, disk: u8, nth: u8, part: usize) {
        let now = self.around.disks[usize::from(disk)];
        let running = self.host.running.iter_mut().find(|r| r.is(disk, nth));
        if let Some(Running { what: Pending::Read { peeked, .. }, .. }) = running {
            match part.checked_sub(1) {
                None => peeked.leader = Some(now.leader),
                Some(host) => peeked.blocks[host] = Some(now.blocks[host]),
            }
        }
    }

    /// A read of the own block that goes along with another one sees it now.
    pub fn own_block(&mut self) {
        if let Some(op) = self.host.own_read.take() {
            let told = self.step_read(op, self.around.disks[0], self.id().block_sector(), 1);
            self.follow(told);
        }
    }

    /// The operation on a disk fails.
    pub fn fail(&mut self, disk: u8, nth: u8) {
        self.let_go();
        self.own_block();
        self.end(disk, nth, |_| Ended::Failed);
    }

    /// The write on a disk times out.
    pub fn time_out(&mut self, disk: u8, nth: u8) {
        self.let_go();
        let running = self.host.running.iter().find(|r| r.is(disk, nth));
        if let Some(Running { op, what: Pending::Write { sector, content }, .. }) = running.copied() {
            self.host.late.push(Late { op: Some(op), disk, sector, content });
            self.end(disk, nth, |_| Ended::TimedOut);
        }
    }

    /// A late write has landed, or failed for good.
    pub fn settled(&mut self, which: usize, landed: bool) {
        let late = self.host.late.remove(which);
        if let Some(op) = late.op {
            if let Some(running) = self.host.running.iter_mut().find(|r| r.op == op) {
                running.ended = Some(Ended::Settled { landed });
            } else if self.host.job.is_some() {
                let ok: Result<View<'_>, IoFailure> = Ok(&NoSectors);
                let result = if landed { ok } else { Err(IoFailure::Os(EIO)) };
                self.tell(Input::CompletedLate { op, result });
            }
        }
        if self.host.late.is_empty() {
            self.all_settled();
        }
    }

    fn step_read(&mut self, op: OpId, seen: Resource, first: u64, count: u64) -> Told {
        // The view borrows the table that a step may add to: a step adds nothing while it looks at the view.
        let contents = std::mem::take(self.contents);
        let view = seen.view(&contents, first, count);
        let told = self.step(Input::Completed { op, result: Ok(&view) });
        *self.contents = contents;
        told
    }

    /// Whether somebody else may write the own block: to clear the mode block of this host's former life.
    fn may_be_cleared(&self) -> bool {
        self.host.job_generation > 1 && self.settings.plans.iter().flatten().any(|p| *p != Plan::Exclusive)
    }

    /// Takes operations in. Reads of the own block are done at once where nobody else writes that sector: no write of our own is in
    /// flight, so that their moment makes no difference. Neither does it when an operation on a lost path fails; but of a host that
    /// reaches no disk at all one operation is left to end later, for its process to hold a lease until then.
    ///
    /// Of several disks the own block is read at once also where somebody clears the mode block of a former life. That leaves schedules
    /// out: a block that is cleared between the two reads with which a host begins.
    pub(crate) fn submit_all(&mut self, ops: &[Op]) {
        let alone = ops.len() == 1 || self.settings.disks > 1;
        let own: Vec<&Op> = ops.iter().filter(|op| self.submit(op, alone)).collect();
        let out = &mut self.host.running;
        if let Some(last) = out.last_mut().filter(|last| last.ended.is_some()) {
            let last = last.op;
            if out.iter().all(|r| r.ended.is_some()) && own.is_empty() {
                out.iter_mut().filter(|r| r.op == last).for_each(|r| r.ended = None);
            }
        }
        if own.is_empty() {
            return;
        }
        if self.settings.disks == 1 {
            for op in own {
                let told = self.step_read(op.id, self.around.disks[0], self.id().block_sector(), 1);
                self.follow(told);
            }
            return;
        }
        for op in own {
            let Place::Resource(disk) = op.place else { continue };
            let sector = self.id().block_sector();
            let what = Pending::Read { first: sector, count: 1, peeked: Peeked::default() };
            let seen = self.around.disks[usize::from(disk)].only(sector, 1);
            let ended = if self.host.is_cut_off(disk) { Ended::Failed } else { Ended::Saw(seen) };
            self.host.running.push(Running { op: op.id, disk, nth: 0, what, ended: Some(ended) });
        }
        self.tell_of_all();
    }

    /// Returns whether it is a read of the own block that is to be done at once.
    fn submit(&mut self, op: &Op, alone: bool) -> bool {
        let own_block = self.id().block_sector();
        let disk = match op.place {
            Place::Resource(disk) => disk,
            Place::Lockspace => 0,
        };
        let what = match (op.place, op.action.clone()) {
            (Place::Resource(_), Action::Read { first, count: 1 })
                if first == own_block
                    && self.host.late.is_empty()
                    && (self.settings.disks > 1 || !(alone && self.may_be_cleared())) =>
            {
                if !self.may_be_cleared() || self.settings.disks > 1 {
                    return true;
                }
                self.host.own_read = Some(op.id);
                return false;
            }
            (Place::Resource(_), Action::Read { first, count }) => {
                Pending::Read { first, count, peeked: Peeked::default() }
            }
            (Place::Lockspace, Action::Read { first, .. }) => {
                Pending::ReadDelta { host: usize::try_from(first).unwrap_or(usize::MAX) }
            }
            (place, Action::Write { sector, content }) => {
                let legal = match content {
                    Content::Leader(_) => sector == 0,
                    Content::Block(block) => {
                        // What is allowed in the blocks of others is looked at when it lands.
                        let other = disk::block_owner(sector).is_some() && !block.mode.is_shared();
                        sector == own_block || (other && self.host.plan != Plan::Shared)
                    }
                    Content::Value(_) | Content::Delta { .. } => false,
                };
                if !legal || place == Place::Lockspace {
                    self.effects.flags |= BROKE_PLACE;
                }
                if self.generation() != Some(self.host.job_generation) {
                    self.effects.flags |= BROKE_HOST_ID;
                }
                Pending::Write { sector, content: self.contents.number(&content) }
            }
        };
        // A release reads the leader beside its write of the own block, and whoever goes over to a shared hold writes it there. Otherwise one
        // operation at a time is on a disk.
        let beside: Vec<&Running> = self.host.running.iter().filter(|r| r.disk == disk).collect();
        let mark = |r: &&Running| matches!(r.what, Pending::Write { sector, .. } if sector == own_block);
        let of_leader =
            matches!(what, Pending::Read { first: 0, count: 1, .. } | Pending::Write { sector: 0, .. });
        assert!(
            beside.is_empty() || (beside.len() == 1 && beside.iter().all(mark) && of_leader),
            "{what:?} beside {beside:?}"
        );
        let nth = u8::from(!beside.is_empty());
        let cut_off = op.place != Place::Lockspace && self.host.is_cut_off(disk);
        let ended = cut_off.then_some(Ended::Failed);
        self.host.running.push(Running { op: op.id, disk, nth, what, ended });
        false
    }
}
