//! The state of a host as far as its record has been looked at (socket-protocol.md 7, GET_HOSTS and HOST_STATUS).

use sanlock_wire::counters::number;
use sanlock_wire::flags::HostState;
use sanlock_wire::{Host, StateRecord};

/// What GET_HOSTS says of a host, or UNKNOWN where it is FAIL or DEAD only because this host has not looked: the daemon goes by the time since it
/// saw the last renewal, whether or not it could read the record since, as on a host whose own storage is away. `record` is what HOST_STATUS
/// says of the same host, `fail_secs` the silence after which a host counts as FAIL (8 of its io timeouts). `None`: a state of a later release.
///
/// For programs that show hosts. What the daemon itself does with their leases goes by what it has looked at anyhow.
#[must_use]
pub fn state_as_looked_at(host: &Host, record: Option<&StateRecord>, fail_secs: u64) -> Option<HostState> {
    let state = HostState::from_flags(host.flags.get())?;
    let silent = record
        .and_then(|record| Some(number(record, "last_check")?.saturating_sub(number(record, "last_live")?)));
    // By an administrator, as 5.1.1 has it.
    let declared = record.and_then(|record| number(record, "dead_ext")).is_some_and(|set| set != 0);
    Some(match (state, silent) {
        (HostState::Fail | HostState::Dead, Some(silent)) if silent <= fail_secs && !declared => {
            HostState::Unknown
        }
        _ => state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_wire::StateText;

    #[test]
    fn a_host_has_not_failed_for_not_having_been_looked_at() {
        let host = |flags: u32| {
            let (host_id, generation, timestamp) = (2.into(), 3.into(), 500.into());
            Host { host_id, generation, timestamp, io_timeout: 10.into(), flags: flags.into() }
        };
        let record = |last_check: u64, last_live: u64| {
            let text = StateText::new().item("last_check", last_check).item("last_live", last_live);
            StateRecord::host(2, 500, text)
        };
        for (flags, looked, expected) in [
            (4, Some((1080, 1000)), Some(HostState::Unknown)),
            (4, Some((1081, 1000)), Some(HostState::Fail)),
            (5, Some((1004, 1000)), Some(HostState::Unknown)),
            (5, Some((1081, 1000)), Some(HostState::Dead)),
            (5, None, Some(HostState::Dead)),
            (3, Some((1004, 1000)), Some(HostState::Live)),
            (2, Some((1004, 1000)), Some(HostState::Free)),
            (1, Some((1004, 1000)), Some(HostState::Unknown)),
            (9, Some((1004, 1000)), None),
        ] {
            let record = looked.map(|(check, live)| record(check, live));
            assert_eq!(state_as_looked_at(&host(flags), record.as_ref(), 80), expected, "{flags} {looked:?}");
        }
        let text = StateText::new().item("last_check", 1004).item("last_live", 1000).item("dead_ext", 1);
        let declared = StateRecord::host(2, 500, text);
        assert_eq!(state_as_looked_at(&host(5), Some(&declared), 80), Some(HostState::Dead));
    }
}
