//! The leader of a lease that is given up: whether it is ours to write, and what becomes of it (lease-algorithms.md 6.2 steps 3 to 5).

use super::*;

impl PaxosRelease {
    pub(super) fn ask_for_leaders(&mut self, now: MonoTime) {
        for disk in 0..self.config.disks {
            if !self.ops.skips(disk) {
                self.ops.read(disk, self.geometry.sector(), 0, 1, self.deadline(now), For::Leader);
            }
        }
    }

    pub(super) fn read_leader(&mut self, now: MonoTime, env: &Env<'_>) -> Step<ReleaseOutcome> {
        self.ask_for_leaders(now);
        self.submit(now, env, Phase::ReadLeader(Votes::default()))
    }

    pub(super) fn after_read_leader(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        votes: &Votes<LeaderFail>,
    ) -> Step<ReleaseOutcome> {
        let disks = self.config.disks;
        // Whoever reads a leader of ours takes us for the owner until it is free, so ours is to be freed on whichever disk it is.
        let ours = |leader: &RawLeader| leader.write_id.get() == self.config.host.get();
        let leader = match votes.verdict(disks, self.config.majority(), ours) {
            // Ours on some disks only, it is freed on all of them.
            Verdict::Leader(leader) | Verdict::Newest(leader) => leader,
            // The others may have a leader of ours, which is to be freed.
            Verdict::Failed(other @ LeaderFail::Leader(_))
                if votes.may_be_elsewhere(self.config.majority()) =>
            {
                return self.done(Err(ReleaseError::LeaderRead { readable: 0, disks, other: Some(other) }));
            }
            // Whoever owned the lease after us has renamed it: our flag has released it.
            Verdict::Failed(LeaderFail::Leader(LeaderError::Resource { .. }))
                if self.mark.is_some() && self.block_failure.is_none() =>
            {
                return self.done(Ok(Released::ByFlag));
            }
            Verdict::Failed(LeaderFail::Io(e)) => return self.done(Err(ReleaseError::Io(e))),
            // Nothing more is done with the leader, so our block is all that can release it. Where there is plainly another lease, or none, it
            // is not written any more; nor where it is a newer hold's.
            Verdict::Failed(LeaderFail::Leader(e))
                if self.leader_first()
                    && (!e.is_of_another() || matches!(e, LeaderError::Resource { .. }))
                    && !self.newer_hold =>
            {
                return self.mark(now, env, Err(ReleaseError::Leader(e)));
            }
            Verdict::Failed(LeaderFail::Leader(e)) => return self.done(Err(ReleaseError::Leader(e))),
            Verdict::TooFew(readable, other) => {
                return self.done(Err(ReleaseError::LeaderRead { readable, disks, other }));
            }
            Verdict::Differ => return self.done(Err(ReleaseError::LeaderDiff)),
        };
        match self.judge(&leader) {
            Ok(true) => {
                let mut free = self.freed(now, leader);
                if let (true, Some((readable, other))) = (self.leader_first(), votes.missing(disks)) {
                    self.not_renamed = Some(ReleaseError::NotRenamed { readable, disks, other });
                } else if let (Some(name), What::Held(held)) = (&self.rename, &self.what) {
                    free.resource_name = name.to_field();
                    // Whoever committed it in our name had an older number.
                    free.num_hosts = free.num_hosts.get().max(held.leader.num_hosts.get()).into();
                    free.seal();
                }
                match self.write_all(now, env, 0, &Content::Leader(free)) {
                    Ok(tally) => self.submit(now, env, Phase::WriteLeader(tally)),
                    Err(e) => self.done(Err(e)),
                }
            }
            Err(e) if self.leader_first() => self.mark(now, env, Err(e)),
            Ok(false) => match (self.mark.is_some(), self.block_failure) {
                // The flag is all that could release the lease, and it is not on disk.
                (true, Some(failure)) => self.done(Err(ReleaseError::DblockWrite(failure))),
                (true, None) => self.done(Ok(Released::ByFlag)),
                (false, _) => self.done(Ok(Released::NothingToDo)),
            },
            Err(e) => self.done(Err(e)),
        }
    }

    /// A leader as it says that the lease is free.
    pub(super) fn freed(&self, now: MonoTime, leader: RawLeader) -> RawLeader {
        let mut free = leader;
        free.timestamp = 0.into();
        free.write_id = self.config.host.get().into();
        free.write_generation = self.config.generation.into();
        free.write_timestamp = now.secs().into();
        free.flags = (free.flags.get() & !FLAG_SHORT_HOLD).into();
        free.seal();
        free
    }

    /// Whether the leader is ours to free (lease-algorithms.md 6.2 step 4).
    pub(super) fn judge(&self, leader: &RawLeader) -> Result<bool, ReleaseError> {
        let owner = ReleaseError::Owner {
            host_id: leader.owner_id.get(),
            generation: leader.owner_generation.get(),
            timestamp: leader.timestamp.get(),
        };
        let writer_is_us = leader.write_id.get() == self.config.host.get();
        match &self.what {
            What::Held(held) if self.leader_first() && !writer_is_us => {
                let named = leader.lver == held.leader.lver
                    && leader.owner_id.get() == self.config.host.get()
                    && leader.owner_generation.get() == self.config.generation
                    && leader.timestamp.get() != 0;
                if named { Ok(true) } else { Err(owner) }
            }
            What::Held(held) | What::Exclusivity(held) => {
                if !writer_is_us {
                    Ok(false)
                } else if leader.lver != held.leader.lver {
                    Err(ReleaseError::Lver { expected: held.lver(), found: leader.lver.get() })
                } else if leader == &held.leader {
                    Ok(true)
                } else {
                    Err(owner)
                }
            }
            // Under its new name it is not this lease of ours any more.
            What::Whatever if !self.config.resource.matches(&leader.resource_name) => Ok(false),
            What::Whatever => Ok(writer_is_us
                && leader.timestamp.get() != 0
                && leader.owner_id.get() == self.config.host.get()
                && leader.owner_generation.get() == self.config.generation),
        }
    }

    pub(super) fn after_write_leader(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        tally: Tally,
    ) -> Step<ReleaseOutcome> {
        if tally.ok < self.config.majority() {
            return self.done(Err(ReleaseError::LeaderWrite(tally.failure())));
        }
        if self.leader_first() {
            let told = self.not_renamed.map_or(Ok(Released::LeaderFreed), Err);
            return self.mark(now, env, told);
        }
        self.done(Ok(Released::LeaderFreed))
    }

    /// Whether the leader is looked at and written before our block is marked.
    pub(super) fn leader_first(&self) -> bool {
        self.rename.is_some() && matches!(self.what, What::Held(held) if !held.is_shared())
    }

    /// The leader came first; what there is to be told is told when our block is marked too.
    pub(super) fn mark(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        told: Result<Released, ReleaseError>,
    ) -> Step<ReleaseOutcome> {
        let What::Held(held) = self.what else { return self.done(told) };
        self.told = Some(told);
        self.write_block(now, env, held.block)
    }

    pub(super) fn decode_leader(&self, result: Result<View<'_>, IoFailure>) -> Result<RawLeader, LeaderFail> {
        let decoded = self.decode_as(self.config.resource, result);
        match (&decoded, &self.rename, &self.what) {
            (Err(LeaderFail::Leader(LeaderError::Resource { .. })), Some(name), What::Whatever) => {
                self.decode_as(*name, result)
            }
            _ => decoded,
        }
    }

    /// The leader under this name. With sectors of another size it is no more that of the lease which is given up, whatever it is called: where our
    /// block was, others have theirs.
    fn decode_as(
        &self,
        resource: Name,
        result: Result<View<'_>, IoFailure>,
    ) -> Result<RawLeader, LeaderFail> {
        let leader = PaxosConfig { resource, ..self.config }.decode_leader(result)?;
        let (expected, found) = (self.geometry.sector().bytes(), leader.sector_size.get());
        if found == expected {
            Ok(leader)
        } else {
            Err(LeaderFail::Leader(LeaderError::OtherSectors { expected, found }))
        }
    }

    /// A leader under another name, if it is right in all else.
    pub(super) fn renamed_leader(
        &self,
        leader: &Result<RawLeader, LeaderFail>,
        result: Result<View<'_>, IoFailure>,
    ) -> Option<RawLeader> {
        let Err(LeaderFail::Leader(LeaderError::Resource { found, .. })) = leader else { return None };
        self.decode_as(*found, result).ok()
    }

    /// Whether this host wrote a leader, with its present generation.
    pub(super) fn wrote(&self, leader: &RawLeader) -> bool {
        leader.write_id.get() == self.config.host.get()
            && leader.write_generation.get() == self.config.generation
    }
}
