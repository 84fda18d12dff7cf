//! Shared mode as the original does it: what an exclusive acquire does about mode blocks (5.4), and how a host comes to share (5.2).
//!
//! Weaknesses included: whether a sharer lives is judged from the host table alone (W3), and the whole block of a dead one is
//! overwritten with zeros (W1). Only in the random runs a peer is [`careful`](ReferenceAcquire::careful) about the first.

use super::{Phase, ReferenceAcquire, ReferenceRelease};
use sanlock_lease::geometry::HostId;
use sanlock_lease::hosts::HostSeen;
use sanlock_lease::machine::{Action, Content, Env, Input, IoFailure, Machine, Place, Step, View};
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome, Mode};
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::{AcquireError, Held, PaxosConfig};
use sanlock_lease::record::{HostBlock, ModeBlock, RawLeader};
use sanlock_lease::timing::{MonoTime, WatchdogFire};

/// 3.3: what the table alone says of the instance that set a mode block.
fn alive_by_table(now: MonoTime, generation: u64, seen: Option<HostSeen>, fire: WatchdogFire) -> bool {
    let Some(seen) = seen else { return true };
    let silent = now.secs_since(seen.last_live.unwrap_or(seen.first_check));
    seen.timestamp != 0
        && seen.owner_generation <= generation
        && silent <= seen.io_timeout.host_dead_secs(fire)
}

/// What a careful peer makes of a sharer's host id lease: the instance has left, or the table and the disk agree that it is silent. A
/// renewal's look may have seen it alive since the table was asked first.
fn gone(
    now: MonoTime,
    generation: u64,
    delta: &RawLeader,
    seen: Option<HostSeen>,
    fire: WatchdogFire,
) -> bool {
    let (on_disk, timestamp) = (delta.owner_generation.get(), delta.timestamp.get());
    let left = on_disk > generation || (on_disk == generation && timestamp == 0);
    let unchanged =
        seen.is_some_and(|s| (s.owner_generation, s.timestamp) == (on_disk, timestamp) && timestamp != 0);
    left || (unchanged && !alive_by_table(now, generation, seen, fire))
}

impl ReferenceAcquire {
    /// The same, but it looks at the host id lease of a sharer before it believes the table, which the original does not.
    #[must_use]
    pub fn careful(mut self) -> Self {
        self.careful = true;
        self
    }

    /// Notes who shares, as phase 1 reads it.
    pub(super) fn count_sharer(&mut self, host: HostId, block: &HostBlock) {
        if block.mode.is_shared() && host != self.config.host && !self.sharers.contains(&host) {
            self.sharers.push(host);
        }
    }

    /// The version is ours; now for those who share.
    pub(super) fn won(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        if self.options.mode == Mode::ShortHold {
            return self.acquired(self.leader);
        }
        self.sharers.sort_unstable();
        self.next_sharer(now)
    }

    fn next_sharer(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        if self.sharers.is_empty() {
            return match self.living.take() {
                Some((host, generation)) => self.give_back(now, AcquireError::Shared { host, generation }),
                None => self.acquired(self.leader),
            };
        }
        let host = self.sharers.remove(0);
        self.read(now, Phase::SharerBlock(host), host.block_sector(), 1)
    }

    pub(super) fn sharer_block(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        host: HostId,
        view: View<'_>,
    ) -> Step<AcquireOutcome> {
        let block = view.sector(host.block_sector()).map_or(HostBlock::zeroed(), HostBlock::from_sector);
        let generation = block.mode.generation.get();
        if !block.mode.is_shared() || generation == 0 {
            return self.next_sharer(now);
        }
        if alive_by_table(now, generation, env.hosts.seen(host), self.config.fire) {
            self.living.get_or_insert((host, generation));
            return self.next_sharer(now);
        }
        if self.careful {
            let read = Action::Read { first: host.delta_sector(), count: 1 };
            return self.io(now, Phase::SharerDelta(host, generation), Place::Lockspace, read);
        }
        self.clear_sharer(now, host)
    }

    pub(super) fn sharer_delta(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        (host, generation): (HostId, u64),
        view: View<'_>,
    ) -> Step<AcquireOutcome> {
        let Some(delta) = view.sector(host.delta_sector()).map(RawLeader::from_sector) else {
            return self.give_back(now, AcquireError::Io(IoFailure::Short));
        };
        if gone(now, generation, &delta, env.hosts.seen(host), self.config.fire) {
            return self.clear_sharer(now, host);
        }
        self.living.get_or_insert((host, generation));
        self.next_sharer(now)
    }

    fn clear_sharer(&mut self, now: MonoTime, host: HostId) -> Step<AcquireOutcome> {
        let content = Content::Block(HostBlock::zeroed());
        let write = Action::Write { sector: host.block_sector(), content };
        self.io(now, Phase::ClearSharer, Place::Resource(0), write)
    }

    pub(super) fn sharer_cleared(&mut self, now: MonoTime) -> Step<AcquireOutcome> {
        self.next_sharer(now)
    }

    /// Releases what was won, then fails.
    pub(super) fn give_back(&mut self, now: MonoTime, error: AcquireError) -> Step<AcquireOutcome> {
        let block = HostBlock { dblock: self.dblock, mode: ModeBlock::zeroed() };
        let held = Held { leader: self.leader, block, geometry: self.config.geometry };
        let mut release = ReferenceRelease::new(self.config, held);
        release.next_op = self.next_op;
        let step = release.begin(now);
        self.phase = Phase::GiveBack;
        self.giving_back = Some((release, error));
        self.pass_release(step)
    }

    pub(super) fn pass_release(&mut self, step: Step<ReleaseOutcome>) -> Step<AcquireOutcome> {
        match step {
            Step::Io(ops) => Step::Io(ops),
            Step::Wait(until) => Step::Wait(until),
            Step::Pending => Step::Pending,
            Step::Done { outcome, .. } => {
                let Some((_, error)) = self.giving_back.take() else { return Step::Pending };
                self.retract = outcome.result.is_err();
                self.fail(error)
            }
        }
    }
}

/// One shared acquire: the lease for a moment, then the mode block, then the leader free again. A refused one is the caller's to
/// repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "one per machine, part of its value")]
pub enum ReferenceShare {
    /// The lease is being taken.
    Acquire(ReferenceAcquire),
    /// It is held; the mode block is written and the leader freed.
    Share(ReferenceRelease, Held),
}

impl ReferenceShare {
    /// A shared acquire that has done nothing yet. The mode of `options` is not looked at.
    #[must_use]
    pub fn new(config: PaxosConfig, options: AcquireOptions) -> Self {
        let options = AcquireOptions { mode: Mode::ShortHold, ..options };
        Self::Acquire(ReferenceAcquire::new(config, options))
    }
}

impl Machine for ReferenceShare {
    type Outcome = AcquireOutcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<AcquireOutcome> {
        let (step, held) = match self {
            Self::Acquire(machine) => match machine.step(now, env, input) {
                Step::Done { outcome: AcquireOutcome::Acquired(held), .. } => {
                    let mut share = ReferenceRelease::to_shared(machine.config, held);
                    share.next_op = machine.next_op;
                    let step = share.begin(now);
                    *self = Self::Share(share, held);
                    (step, held)
                }
                step => return step,
            },
            Self::Share(machine, held) => (machine.step(now, env, input), *held),
        };
        match step {
            Step::Io(ops) => Step::Io(ops),
            Step::Wait(until) => Step::Wait(until),
            Step::Pending => Step::Pending,
            Step::Done { outcome, outstanding } => {
                let outcome = match outcome.result {
                    Ok(_) => {
                        let mode = ModeBlock::shared(held.leader.owner_generation.get());
                        let block = HostBlock { mode, ..held.block };
                        AcquireOutcome::Acquired(Held { block, ..held })
                    }
                    Err(e) => AcquireOutcome::Failed {
                        error: AcquireError::Share(e),
                        retract: Some(held.block),
                        geometry: held.geometry,
                    },
                };
                Step::Done { outcome, outstanding }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::timing::IoTimeout;

    fn delta(generation: u64, timestamp: u64) -> RawLeader {
        RawLeader { owner_generation: generation.into(), timestamp: timestamp.into(), ..RawLeader::zeroed() }
    }

    /// With an io timeout of 10 s and a watchdog of 60 s a host is dead after 140 s.
    #[test]
    fn a_careful_peer_takes_no_sharer_for_dead_that_was_just_seen() {
        let secs = MonoTime::from_secs;
        let seen = |live, generation, timestamp| HostSeen {
            first_check: secs(100),
            last_check: secs(300),
            last_live: Some(secs(live)),
            owner_id: 3,
            owner_generation: generation,
            timestamp,
            io_timeout: IoTimeout::DEFAULT,
            newest_generation: generation,
        };
        let fire = WatchdogFire::DEFAULT;
        let gone = |delta: RawLeader, seen| gone(secs(300), 2, &delta, Some(seen), fire);
        assert!(gone(delta(2, 77), seen(150, 2, 77)), "silent");
        assert!(!gone(delta(2, 77), seen(299, 2, 77)), "seen alive while its record was read");
        assert!(!gone(delta(2, 78), seen(150, 2, 77)), "it has renewed");
        assert!(
            gone(delta(3, 78), seen(299, 3, 78)) && gone(delta(2, 0), seen(299, 2, 77)),
            "another instance, or none"
        );
    }
}
