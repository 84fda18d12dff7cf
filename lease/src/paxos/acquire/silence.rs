//! Hosts other than the leader's owner that may be alive: those that hold the lease shared, or may own a version between the leader and
//! the blocks (rules R5 and R9 of lease-algorithms.md 15.3).
//!
//! As a rule the host table knows them, for every renewal looks at them, and one answer is all it takes. Where it does not, because no look
//! has reached a host for long (the sectors beside its own cannot be read, say), what it says would stand for ever: that host renewed once
//! after the last look at it, and then died. Such a host is watched by our own looks at its record, like an owner
//! (lease-algorithms.md 4.3). All of them are watched at the same time, and one that is alive ends the acquire at once.
//!
//! A watch may take minutes, in which everything else may have changed. So when it is over the acquire starts anew, and finds them silent: what
//! our own looks have shown of an instance stays known for as long as the attempt lasts, whatever it was watched for.

use super::{AcquireOutcome, Mode, PaxosAcquire, Phase};
use crate::geometry::HostId;
use crate::hosts::{HostSeen, Written, judged_by};
use crate::machine::{Env, Step};
use crate::record::RawLeader;
use crate::timing::{IoTimeout, MonoTime, WatchdogFire};

/// Since when our own looks at a host's record have shown the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Silence {
    host: HostId,
    generation: u64,
    written: Written,
    since: MonoTime,
    /// Whether looks of renewals had reached it, though long ago. What they show after that is no news.
    forgotten: bool,
}

/// What a look at a host's record says of one of its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    /// It is no more, and will not come back.
    Gone,
    /// It may be alive.
    Alive,
    /// Only further looks can tell.
    LookAgain,
}

/// Whom a pass over several hosts is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    /// Those that hold the lease shared.
    Holders,
    /// Those that may own a version between the leader's and the blocks'.
    Claims,
}

/// Whether an instance may still be alive, as far as the host table knows (rule R5). In doubt it is.
///
/// * Its host id was given up, or taken anew, since: it is gone. A free record of an *older* generation is the release of an
///   earlier instance that landed late, and says nothing.
/// * Else only silence counts: the record is what the table has seen for longer than the dead time, and still is.
fn maybe_alive(
    asked: MonoTime,
    host: HostId,
    generation: u64,
    delta: &RawLeader,
    seen: Option<HostSeen>,
    ours: IoTimeout,
    fire: WatchdogFire,
) -> bool {
    let (on_disk, timestamp) = (delta.owner_generation.get(), delta.timestamp.get());
    if delta.owner_id.get() == host.get()
        && (on_disk > generation || (timestamp == 0 && on_disk == generation))
    {
        return false;
    }
    let Some(seen) = seen else { return true };
    let unchanged = seen.written() == Written::of(delta);
    let since = seen.last_live.unwrap_or(seen.first_check);
    let io_timeout = judged_by(delta, generation, Some(&seen), ours);
    !unchanged || asked.secs_since(since) <= io_timeout.host_dead_secs(fire)
}

impl PaxosAcquire {
    /// Judges the instance of a host with this generation by its record, which was asked for at `asked`: what it shows may be as old.
    pub(super) fn judge(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        asked: MonoTime,
        (host, generation): (HostId, u64),
        delta: &RawLeader,
    ) -> Verdict {
        let seen = env.hosts.seen(host);
        let (ours, fire) = (self.config.io_timeout, self.config.fire);
        if !maybe_alive(asked, host, generation, delta, seen, ours, fire) {
            return Verdict::Gone;
        }
        // Nor does a conversion, as after every other conflict: the hold goes on, and it would keep others of this host from sharing it meanwhile.
        let waits = !self.options.owner_nowait && self.options.mode != Mode::Upgrade;
        let look_again = if waits { Verdict::LookAgain } else { Verdict::Alive };
        let written = Written::of(delta);
        let known = self.silences.iter().find(|s| (s.host, s.generation) == (host, generation)).copied();
        if let Some(silence) = known.filter(|silence| silence.written == written) {
            let io_timeout = judged_by(delta, generation, seen.as_ref(), ours);
            if asked.secs_since(silence.since) > io_timeout.host_dead_secs(fire) {
                return Verdict::Gone;
            }
            if silence.forgotten {
                return look_again;
            }
        }
        let stale = seen.filter(|seen| asked.secs_since(seen.last_check) > ours.renewal_fail_secs());
        match (known, seen) {
            (_, Some(_)) if stale.is_none() => return Verdict::Alive,
            (Some(silence), _) if silence.written != written => return Verdict::Alive,
            _ => {}
        }
        self.silent_since((host, generation), written, stale.is_some(), now);
        look_again
    }

    /// Since when our own looks have shown this of an instance: `now`, if this is the first one that does. It was asked for before, but it may
    /// have renewed while that look was under way.
    pub(super) fn silent_since(
        &mut self,
        (host, generation): (HostId, u64),
        written: Written,
        forgotten: bool,
        now: MonoTime,
    ) -> MonoTime {
        let new = Silence { host, generation, written, since: now, forgotten };
        let mut known = self.silences.iter_mut();
        match known.find(|s| (s.host, s.generation) == (host, generation)) {
            Some(known) if known.written == written => return known.since,
            Some(known) => *known = new,
            None => self.silences.push(new),
        }
        now
    }

    /// A pass has met a host of which only further looks can tell.
    pub(super) fn is_to_look_again(&mut self, now: MonoTime) {
        self.look_again_from.get_or_insert(now);
        self.undecided = true;
    }

    /// What follows a pass that met nobody who is alive, if that is not simply the next thing to do: another pass, or everything anew.
    pub(super) fn after_pass(
        &mut self,
        now: MonoTime,
        env: &Env<'_>,
        pass: Pass,
    ) -> Option<Step<AcquireOutcome>> {
        let from = self.look_again_from?;
        if std::mem::take(&mut self.undecided) {
            let until = self.after_pause(now);
            self.phase = Phase::LookAgain(until, pass);
            return Some(Step::Wait(until));
        }
        self.look_again_from = None;
        self.waited_since(from, now);
        // What is ours already nobody else has changed.
        self.won.is_none().then(|| self.restart(now, env))
    }
}
