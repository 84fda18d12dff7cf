//! How a host is, from what was seen of its record (lease-algorithms.md 3.2), and when what it holds could be taken.

use super::report::State;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};

/// What was seen of a host's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: Vec<u8>,
    /// In the record now.
    pub(super) generation: u64,
    /// Its clock at its last renewal; 0: it has left, or, as the daemon has seen it, its record is damaged.
    pub(super) timestamp: u64,
    pub(super) io_timeout: IoTimeout,
    pub(super) silence: Silence,
    pub(super) later: Later,
}

/// What hosts of 5.1.1 go by in lockspaces of later versions, which this program's daemon does not join (disk-format.md 11.2, 11.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Later {
    /// NO_TIMEOUT: nobody takes a silent host for dead.
    pub(super) no_timeout: bool,
    /// DEAD_EXT: this generation was declared dead by an administrator.
    pub(super) declared_dead: bool,
}

/// Seconds of silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age {
    /// Until now.
    pub(super) secs: u64,
    /// Until the record was last looked at, and found unchanged: what came since is not known. Nobody is dead for less than this.
    pub(super) confirmed: u64,
}

/// For how long a record has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// Since it was seen to change.
    Since(Age),
    /// Not seen to change since the daemon of this host began to watch it.
    Watched(Age),
    /// Not seen to change in this many seconds of watching by this command: hosts that have been watching for longer know more.
    Glimpsed(u64),
    /// Nothing is known.
    Unknown,
}

impl Silence {
    /// Seconds since a renewal was seen, if one was.
    pub(super) fn since_renewal(self) -> Option<u64> {
        match self {
            Self::Since(age) => Some(age.secs),
            Self::Watched(_) | Self::Glimpsed(_) | Self::Unknown => None,
        }
    }
}

/// What can be said of what a host holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Its record is not known.
    NoRecord,
    /// Its record is damaged on the disk: what it holds can be taken by nobody, whether it lives or not.
    Damaged,
    /// By what the daemon says it could be taken, but its record could not be looked at. Of a record that is damaged the daemon says the same
    /// as of one that is free.
    Unread,
    /// Its record could not be looked at, and the daemon of this host has seen nothing of it.
    Unreadable,
    /// It has left, or joined again: what it held can be taken.
    Gone,
    /// It counts as dead: what it held can be taken.
    Dead,
    /// It was declared dead: what it held can be taken, for others than 3.8.5 and this project's daemon, which cannot join such a lockspace.
    Declared,
    /// Seen to be so, and whatever its silence, what it holds can be taken by nobody before it was declared dead, or joins again.
    Kept(State),
    /// Silent for too long for itself, not yet for others: in this many seconds.
    Failing(u64),
    /// Renewing: in this many seconds if it stopped now.
    Renewing(u64),
    /// Not seen renewing by the daemon of this host: in this many seconds.
    Unseen(u64),
    /// Not seen renewing in these many seconds by this command: a host that begins to watch now could take it in so many seconds, one
    /// that has been watching, sooner.
    Glimpsed { watched: u64, wait: u64 },
    /// Its record is there, and nothing is known of its age.
    AgeUnknown,
    /// The daemon of this host has not looked at its record for this many seconds, as when its disk is away from here: what the host did meanwhile is not known.
    NotLooked(u64),
    /// The daemon of this host has seen an earlier instance of it only, whose silence says nothing of the one that holds the lease.
    Earlier,
}

impl Outlook {
    /// Judges a host. `holding`: the generation that holds something, `None` for a member as such; `ours`: this host itself.
    pub(super) fn of(holding: Option<u64>, seen: Option<&Seen>, ours: bool, fire: WatchdogFire) -> Self {
        let Some(seen) = seen else { return Self::NoRecord };
        let held = holding.unwrap_or(seen.generation);
        if seen.generation > held || (seen.timestamp == 0 && seen.generation == held) {
            return Self::Gone;
        }
        // An acquire does not go by what the table says of an older generation either, and counts from its own first look. On the disk such a
        // record is the late release of an earlier instance: the holder is silent, not gone.
        if seen.generation < held && !matches!(seen.silence, Silence::Glimpsed(_)) {
            return Self::Earlier;
        }
        if seen.later.declared_dead && seen.generation == held {
            return Self::Declared;
        }
        match Self::of_silence(seen, held, ours, fire) {
            // Dead is who nobody waits for any more.
            Self::Dead if seen.later.no_timeout => Self::Kept(State::Fail),
            found @ (Self::Failing(_) | Self::Renewing(_) | Self::Unseen(_) | Self::Glimpsed { .. })
                if seen.later.no_timeout =>
            {
                Self::Kept(found.state())
            }
            found => found,
        }
    }

    /// Where silence is what counts.
    fn of_silence(seen: &Seen, held: u64, ours: bool, fire: WatchdogFire) -> Self {
        // Whoever acquires goes by the instance that holds, of which no io timeout is known then.
        let io_timeout = if seen.generation < held { IoTimeout::LONGEST } else { seen.io_timeout };
        let dead = io_timeout.host_dead_secs(fire);
        let wait = |silent: u64| (dead + 1).saturating_sub(silent);
        let fail = seen.io_timeout.renewal_fail_secs();
        match seen.silence {
            Silence::Unknown => Self::AgeUnknown,
            Silence::Since(age) | Silence::Watched(age) if age.confirmed > dead && !ours => Self::Dead,
            Silence::Since(age) | Silence::Watched(age)
                if age.secs > fail && age.confirmed <= fail && !ours =>
            {
                Self::NotLooked(age.secs.saturating_sub(age.confirmed))
            }
            Silence::Since(age) | Silence::Watched(age) if age.secs > fail => Self::Failing(wait(age.secs)),
            Silence::Since(age) => Self::Renewing(wait(age.secs)),
            Silence::Watched(age) => Self::Unseen(wait(age.secs)),
            Silence::Glimpsed(watched) if watched > dead => Self::Dead,
            Silence::Glimpsed(watched) => Self::Glimpsed { watched, wait: wait(watched) },
        }
    }

    /// What remains of it where the record on the disk could not be looked at.
    pub(super) fn unread(self) -> Self {
        match self {
            Self::Gone | Self::Dead | Self::Declared => Self::Unread,
            other => other,
        }
    }

    /// The state of a holder.
    pub(super) fn state(self) -> State {
        match self {
            Self::Gone => State::Gone,
            Self::Dead | Self::Declared => State::Dead,
            Self::Kept(state) => state,
            Self::Failing(_) => State::Fail,
            Self::Renewing(_) => State::Live,
            Self::NoRecord
            | Self::Damaged
            | Self::Unread
            | Self::Unreadable
            | Self::Unseen(_)
            | Self::Glimpsed { .. }
            | Self::AgeUnknown
            | Self::NotLooked(_)
            | Self::Earlier => State::Unknown,
        }
    }

    /// Seconds until what it holds could be taken if it did not renew any more; `None` if that is not known.
    pub(super) fn takeover_secs(self) -> Option<u64> {
        match self {
            Self::Gone | Self::Dead | Self::Declared => Some(0),
            Self::Failing(wait) | Self::Renewing(wait) | Self::Unseen(wait) => Some(wait),
            // Somebody who has been watching for longer may take it sooner.
            Self::Glimpsed { .. }
            | Self::Kept(_)
            | Self::NoRecord
            | Self::Damaged
            | Self::Unread
            | Self::Unreadable
            | Self::AgeUnknown
            | Self::NotLooked(_)
            | Self::Earlier => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(secs: u64) -> Silence {
        Silence::Since(Age { secs, confirmed: secs })
    }

    fn watched(secs: u64) -> Silence {
        Silence::Watched(Age { secs, confirmed: secs })
    }

    fn seen(silence: Silence) -> Seen {
        let io_timeout = IoTimeout::new(10).unwrap();
        let later = Later::default();
        Seen { name: b"a".to_vec(), generation: 3, timestamp: 500, io_timeout, silence, later }
    }

    fn judged(seen: &Seen) -> Outlook {
        Outlook::of(Some(3), Some(seen), false, WatchdogFire::DEFAULT)
    }

    #[test]
    fn silence_decides() {
        for (silence, outlook, state, takeover) in [
            (since(4), Outlook::Renewing(137), State::Live, Some(137)),
            (since(80), Outlook::Renewing(61), State::Live, Some(61)),
            (since(81), Outlook::Failing(60), State::Fail, Some(60)),
            (since(140), Outlook::Failing(1), State::Fail, Some(1)),
            (since(141), Outlook::Dead, State::Dead, Some(0)),
            (watched(5), Outlook::Unseen(136), State::Unknown, Some(136)),
            (watched(100), Outlook::Failing(41), State::Fail, Some(41)),
            (watched(141), Outlook::Dead, State::Dead, Some(0)),
            (Silence::Glimpsed(30), Outlook::Glimpsed { watched: 30, wait: 111 }, State::Unknown, None),
            (Silence::Glimpsed(141), Outlook::Dead, State::Dead, Some(0)),
            (Silence::Unknown, Outlook::AgeUnknown, State::Unknown, None),
        ] {
            let found = judged(&seen(silence));
            assert_eq!(
                (found, found.state(), found.takeover_secs()),
                (outlook, state, takeover),
                "{silence:?}"
            );
        }
    }

    /// A daemon whose disk stands still has not seen what the host wrote meanwhile.
    #[test]
    fn nobody_is_dead_before_a_look_confirms_it() {
        for (secs, confirmed, outlook) in [
            (150, 139, Outlook::Failing(0)),
            (150, 140, Outlook::Failing(0)),
            (150, 141, Outlook::Dead),
            (150, 80, Outlook::NotLooked(70)),
            (9000, 4, Outlook::NotLooked(8996)),
        ] {
            let age = Age { secs, confirmed };
            for silence in [Silence::Since(age), Silence::Watched(age)] {
                assert_eq!(judged(&seen(silence)), outlook, "{silence:?}");
            }
        }
    }

    #[test]
    fn a_host_that_left_or_came_back_holds_nothing() {
        let left = Seen { timestamp: 0, ..seen(since(1)) };
        let again = Seen { generation: 4, ..seen(since(1)) };
        assert_eq!((judged(&left), judged(&again)), (Outlook::Gone, Outlook::Gone));
        // As a member it is what its record says.
        assert_eq!(Outlook::of(None, Some(&again), false, WatchdogFire::DEFAULT), Outlook::Renewing(140));
        assert_eq!(Outlook::of(Some(3), None, false, WatchdogFire::DEFAULT), Outlook::NoRecord);
    }

    #[test]
    fn where_silence_frees_nothing_it_frees_nothing() {
        let kept = |silence| {
            let later = Later { no_timeout: true, declared_dead: false };
            let found = judged(&Seen { later, ..seen(silence) });
            (found, found.takeover_secs())
        };
        for (silence, expected) in [
            (since(4), Outlook::Kept(State::Live)),
            (since(81), Outlook::Kept(State::Fail)),
            (since(9000), Outlook::Kept(State::Fail)),
            (watched(9000), Outlook::Kept(State::Fail)),
            (watched(5), Outlook::Kept(State::Unknown)),
            (Silence::Glimpsed(30), Outlook::Kept(State::Unknown)),
            (Silence::Glimpsed(9000), Outlook::Kept(State::Fail)),
            (Silence::Unknown, Outlook::AgeUnknown),
        ] {
            assert_eq!(kept(silence), (expected, None), "{silence:?}");
        }
        // Who has joined again holds nothing, and neither does who was declared dead since it took the lease.
        let later = Later { no_timeout: true, declared_dead: true };
        let declared = Seen { later, ..seen(since(4)) };
        let of = |held| Outlook::of(Some(held), Some(&declared), false, WatchdogFire::DEFAULT);
        assert_eq!((of(3), of(2), of(4)), (Outlook::Declared, Outlook::Gone, Outlook::Earlier));
        assert_eq!((of(3).state(), of(3).takeover_secs()), (State::Dead, Some(0)));
    }

    /// Of a record that is damaged the daemon says the same as of one that is free.
    #[test]
    fn nothing_can_be_taken_by_a_record_that_could_not_be_looked_at() {
        for (found, left) in [
            (Outlook::Gone, Outlook::Unread),
            (Outlook::Dead, Outlook::Unread),
            (Outlook::Renewing(137), Outlook::Renewing(137)),
            (Outlook::Failing(0), Outlook::Failing(0)),
        ] {
            assert_eq!(found.unread(), left, "{found:?}");
        }
        for unknown in [Outlook::Unread, Outlook::Unreadable, Outlook::Damaged, Outlook::NoRecord] {
            assert_eq!((unknown.state(), unknown.takeover_secs()), (State::Unknown, None), "{unknown:?}");
        }
    }

    /// It may have joined again a moment ago. An acquire does not count the silence of an earlier instance either.
    #[test]
    fn the_silence_of_an_earlier_instance_says_nothing_of_the_holder() {
        for silence in [since(4), since(100), since(9000), watched(100), watched(9000), Silence::Unknown] {
            for timestamp in [500, 0] {
                let older = Seen { timestamp, generation: 2, ..seen(silence) };
                let found = judged(&older);
                assert_eq!(found, Outlook::Earlier, "{silence:?}");
                assert_eq!((found.state(), found.takeover_secs()), (State::Unknown, None));
            }
        }
    }

    /// An acquire waits here too.
    #[test]
    fn a_free_record_of_an_older_generation_frees_nothing() {
        let older = Seen { timestamp: 0, generation: 2, ..seen(Silence::Glimpsed(50)) };
        // By the longest io timeout there is: that of the holder is not known.
        let dead = IoTimeout::LONGEST.host_dead_secs(WatchdogFire::DEFAULT);
        assert_eq!(judged(&older), Outlook::Glimpsed { watched: 50, wait: dead + 1 - 50 });
        let watched = Seen { timestamp: 900, silence: Silence::Glimpsed(141), ..older };
        assert!(
            matches!(judged(&watched), Outlook::Glimpsed { .. }),
            "dead by its own io timeout, which was another"
        );
    }

    #[test]
    fn this_host_is_never_dead_to_itself() {
        let found = Outlook::of(Some(3), Some(&seen(since(200))), true, WatchdogFire::DEFAULT);
        assert_eq!(found, Outlook::Failing(0));
    }
}
