//! Whether the owners of a resource stand in the way, from what others report of their hosts (socket-protocol.md 11.5). Nothing is
//! asked of the daemon, and nothing is read.

use sanlock_wire::flags::{HOST_STATE_MASK, HostState};
use sanlock_wire::types::Host;

/// Owners and hosts do not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OwnersError {
    /// A host is reported with an older generation than the one that owns the resource: the report is older than the ownership.
    #[error(
        "host {host_id} is reported with generation {reported}, but owns with generation {owning}: read the hosts again"
    )]
    OlderGeneration {
        /// Which.
        host_id: u64,
        /// In the report.
        reported: u64,
        /// In the lease.
        owning: u64,
    },
    /// A host is reported in a state that does not exist.
    #[error("host {host_id} is reported in state {state}, expected 1 (UNKNOWN) to 5 (DEAD)")]
    State {
        /// Which.
        host_id: u64,
        /// The low four bits of its flags.
        state: u32,
    },
}

impl OwnersError {
    /// What `sanlock_test_resource_owners` returns for it.
    #[must_use]
    pub const fn result_code(&self) -> i32 {
        sanlock_wire::code::EINVAL
    }
}

/// Whether an owner of a resource may still be alive: `owners` as READ_RESOURCE_OWNERS gave them, `hosts` as GET_HOSTS did. An owner
/// whose host is not reported, or reported with a newer generation, or FREE or DEAD, is none. The C library sets `SANLK_TRF_FAIL`
/// for `true`.
///
/// # Errors
/// [`OwnersError`]; the first owner that cannot be judged ends it.
pub fn test_resource_owners(owners: &[Host], hosts: &[Host]) -> Result<bool, OwnersError> {
    let mut in_the_way = false;
    for owner in owners {
        let host_id = owner.host_id.get();
        let Some(host) = hosts.iter().find(|host| host.host_id.get() == host_id) else { continue };
        let (reported, owning) = (host.generation.get(), owner.generation.get());
        if reported < owning {
            return Err(OwnersError::OlderGeneration { host_id, reported, owning });
        }
        if reported > owning {
            continue;
        }
        match HostState::from_flags(host.flags.get()) {
            Some(HostState::Free | HostState::Dead) => {}
            Some(HostState::Live | HostState::Fail | HostState::Unknown) => in_the_way = true,
            None => return Err(OwnersError::State { host_id, state: host.flags.get() & HOST_STATE_MASK }),
        }
    }
    Ok(in_the_way)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(host_id: u64, generation: u64, flags: u32) -> Host {
        let (host_id, generation, flags) = (host_id.into(), generation.into(), flags.into());
        Host { host_id, generation, timestamp: 0.into(), io_timeout: 0.into(), flags }
    }

    /// The rows are what the original's library answers.
    #[test]
    fn an_owner_is_in_the_way_unless_its_host_is_known_to_be_gone() {
        let owners = [host(1, 3, 0)];
        for (hosts, expected) in [
            (vec![], Ok(false)),
            (vec![host(2, 1, 3)], Ok(false)),
            (vec![host(1, 4, 3)], Ok(false)),
            (vec![host(1, 3, 1)], Ok(true)),
            (vec![host(1, 3, 2)], Ok(false)),
            (vec![host(1, 3, 3)], Ok(true)),
            (vec![host(1, 3, 4)], Ok(true)),
            (vec![host(1, 3, 5)], Ok(false)),
            (vec![host(1, 3, 0x13)], Ok(true)),
            (vec![host(1, 3, 6)], Err(OwnersError::State { host_id: 1, state: 6 })),
            (vec![host(1, 3, 0)], Err(OwnersError::State { host_id: 1, state: 0 })),
            (vec![host(1, 2, 5)], Err(OwnersError::OlderGeneration { host_id: 1, reported: 2, owning: 3 })),
        ] {
            assert_eq!(test_resource_owners(&owners, &hosts), expected, "{hosts:?}");
        }
        assert_eq!(test_resource_owners(&[], &[host(1, 1, 3)]), Ok(false));
        let several = [host(1, 1, 0), host(2, 1, 0)];
        assert_eq!(test_resource_owners(&several, &[host(1, 1, 5), host(2, 1, 3)]), Ok(true));
    }
}
