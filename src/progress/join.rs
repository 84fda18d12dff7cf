//! How long a join takes, from what the record of the host id said before it (lease-algorithms.md 2.3).

use super::{left, passed_since};
use crate::direct::host_id_record;
use sanlock_lease::name::Name;
use sanlock_lease::record::RawLeader;
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long the join may be held up for the sake of saying how long it takes.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// What a join waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Join {
    host_id: u64,
    before: Before,
    /// The host id's io timeout: that of its record, else that of the join.
    io_timeout: IoTimeout,
    fire: WatchdogFire,
}

/// The host id before the join.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Before {
    /// Nobody's.
    Free,
    /// Somebody's who has not left.
    Held(String),
    /// This host's, which has not left it: its daemon may know that nothing is left of the one before.
    Ours,
    /// Its record could not be read.
    Unknown,
}

impl Join {
    /// Looks at the record, but not for long. To be called before the join, which changes it. `rejoins`: the name of a host whose daemon may
    /// take up what it had.
    pub(crate) fn look(
        spec: &LockspaceSpec,
        io_timeout: IoTimeout,
        fire: WatchdogFire,
        rejoins: Option<&[u8]>,
    ) -> Self {
        let (tell, told) = channel();
        let wanted = spec.clone();
        let look = move || {
            // Nobody waits for it any more after a second.
            let _ = tell.send(host_id_record(&wanted));
        };
        let looking = std::thread::Builder::new().name("look".to_owned()).spawn(look);
        let record = looking.ok().and_then(|_| told.recv_timeout(LOOK_LIMIT).ok().flatten());
        Self::of(spec.host_id, record.as_ref(), io_timeout, fire, rejoins)
    }

    fn of(
        host_id: u64,
        record: Option<&RawLeader>,
        io_timeout: IoTimeout,
        fire: WatchdogFire,
        rejoins: Option<&[u8]>,
    ) -> Self {
        let before = match record.map(|record| (record, Name::from_field(&record.resource_name))) {
            None => Before::Unknown,
            Some((record, _)) if record.timestamp.get() == 0 => Before::Free,
            Some((_, name)) if rejoins == Some(name.as_bytes()) => Before::Ours,
            Some((_, name)) => Before::Held(name.to_string()),
        };
        let io_timeout =
            record.map_or(io_timeout, |record| IoTimeout::from_disk(record.io_timeout.get(), io_timeout));
        Self { host_id, before, io_timeout, fire }
    }

    /// What to say after so many seconds.
    pub(crate) fn tell(&self, passed: Duration) -> String {
        let (passed, host) = (passed.as_secs(), self.host_id);
        let settle = self.io_timeout.delta_short_delay_secs();
        // A second more than others take for safe.
        let dead = self.io_timeout.host_dead_secs(self.fire) + 1;
        match &self.before {
            Before::Free => left(&format!("making sure that host id {host} is ours alone"), settle, passed),
            Before::Held(name) if passed < dead => left(
                &format!("host id {host} was not left by {name:?}: waiting until that must be dead"),
                dead + settle,
                passed,
            ),
            Before::Held(_) => {
                left(&format!("making sure that host id {host} is ours alone"), dead + settle, passed)
            }
            Before::Unknown => passed_since(
                &format!(
                    "joining takes {settle} s, or {} s if host id {host} was not left in order",
                    dead + settle
                ),
                passed,
            ),
            Before::Ours => passed_since(
                &format!(
                    "host id {host} was this host's and not left: joining takes {settle} s, or {} s if the daemon cannot tell that nothing is left of it",
                    dead + settle
                ),
                passed,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(timestamp: u64, io_timeout: u16) -> RawLeader {
        let mut record = RawLeader::zeroed();
        record.timestamp = timestamp.into();
        record.io_timeout = io_timeout.into();
        record.resource_name = Name::new(b"hostA").unwrap().to_field();
        record
    }

    fn told(record: Option<&RawLeader>, passed: u64) -> String {
        Join::of(3, record, IoTimeout::DEFAULT, WatchdogFire::DEFAULT, Some(b"hostB"))
            .tell(Duration::from_secs(passed))
    }

    #[test]
    fn a_free_host_id_takes_two_io_timeouts() {
        assert_eq!(told(Some(&record(0, 0)), 5), "15 s left: making sure that host id 3 is ours alone");
        assert!(told(Some(&record(0, 0)), 21).starts_with("21 s so far: making sure"));
    }

    #[test]
    fn a_host_id_that_was_not_left_is_waited_for_as_its_own_record_says() {
        // 8 x 5 + 60 + 1, and 2 x 5 to settle.
        let held = record(77, 5);
        assert_eq!(
            told(Some(&held), 1),
            "110 s left: host id 3 was not left by \"hostA\": waiting until that must be dead"
        );
        assert_eq!(told(Some(&held), 101), "10 s left: making sure that host id 3 is ours alone");
    }

    #[test]
    fn a_host_that_comes_back_need_not_wait_for_itself() {
        let mut own = record(77, 5);
        own.resource_name = Name::new(b"hostB").unwrap().to_field();
        let told = told(Some(&own), 4);
        assert!(told.starts_with("4 s so far: host id 3 was this host's"), "{told}");
        assert!(told.contains("10 s, or 111 s"), "{told}");
    }

    #[test]
    fn what_is_not_known_is_said_with_its_bounds() {
        assert_eq!(
            told(None, 4),
            "4 s so far: joining takes 20 s, or 161 s if host id 3 was not left in order"
        );
    }

    #[test]
    fn a_path_that_is_none_holds_nothing_up() {
        let mut spec = LockspaceSpec::default();
        spec.merge(sanlock_lease::text::strict::lockspace(b"LS:3:/nonexistent:0").unwrap());
        let join = Join::look(&spec, IoTimeout::DEFAULT, WatchdogFire::DEFAULT, None);
        assert_eq!(join.before, Before::Unknown);
    }
}
