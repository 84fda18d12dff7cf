//! Differences that are meant, or that the original's own rules make unavoidable, each with its reason.

use sanlock_conformance::raw::{cmd, flag};

use std::path::Path;

use crate::disk::has_left_shared;
use crate::request::{Lease, Part, Request};
use crate::side::Reply;
use crate::state::State;

/// A difference between two replies that changes nothing else.
struct Excuse {
    reason: &'static str,
    /// Whether it explains the two results.
    explains: fn(&Request, &State, i32, i32) -> bool,
}

const EXCUSES: &[Excuse] = &[
    Excuse {
        reason: "RENEWAL of a lockspace without history: data2 (docs/observed-behaviour.md)",
        explains: |request, _, reference, ours| request.cmd == cmd::RENEWAL && reference == ours,
    },
    Excuse {
        reason: "GET_LVB that fails announces bytes that do not come (socket-protocol.md 15, 12)",
        explains: |request, _, reference, ours| request.cmd == cmd::GET_LVB && reference == ours && ours < 0,
    },
    Excuse {
        reason: "READ_RESOURCE_OWNERS with a sector flag alone: the size of the area is read before the record is looked at",
        explains: |request, _, reference, ours| {
            let sector = |lease: &Lease| lease.flags & SIZES == flag::SECTOR4K;
            request.cmd == cmd::READ_RESOURCE_OWNERS
                && request.leases().any(sector)
                && matches!((reference, ours), (-22 | -90, 0) | (-90, -227..=-223 | -22))
        },
    },
    Excuse {
        reason: "what is in use is looked at before the sizes of what is to be formatted",
        explains: |request, _, reference, ours| {
            matches!(request.cmd, cmd::WRITE_LOCKSPACE | cmd::WRITE_RESOURCE)
                && (reference, ours) == (-1, -16)
        },
    },
    Excuse {
        reason: "READ_LOCKSPACE of a host id whose record would lie beyond the end",
        explains: |request, _, reference, ours| {
            request.cmd == cmd::READ_LOCKSPACE && (reference, ours) == (-90, -223)
        },
    },
    Excuse {
        reason: "an index that cannot be opened, of a lockspace that is not joined or ends: which of the two is said",
        explains: |request, state, reference, ours| {
            matches!(reference, -2 | -13 | -20 | -21)
                && matches!(ours, -2 | -28)
                && request
                    .parts
                    .iter()
                    .any(|part| matches!(part, Part::Index { lockspace, .. } if !joined(state, lockspace)))
        },
    },
    Excuse {
        reason: "several disks that all have another lease, or none",
        explains: |request, _, reference, ours| {
            request.cmd == cmd::ACQUIRE
                && request.leases().any(|lease| lease.disks.len() > 1)
                && matches!(reference, -220 | -210)
                && matches!(ours, -227..=-223)
        },
    },
    Excuse {
        reason: "UPDATE_RINDEX without what to do, for an offset that is no entry's",
        explains: |request, _, reference, ours| {
            request.cmd == cmd::UPDATE_RINDEX && (reference, ours) == (-277, -22)
        },
    },
    Excuse {
        reason: "where an acquire finds that its file ends within the lease (docs/differences.md)",
        explains: |request, _, reference, ours| {
            request.cmd == cmd::ACQUIRE && (reference, ours) == (-90, -223)
        },
    },
];

fn joined(state: &State, lockspace: &str) -> bool {
    state.space(lockspace).is_some_and(|space| space.list == "spaces" && !space.dead)
}

/// All flags that say sizes.
const SIZES: u32 = 0x3f0;

/// Why these two replies differ, where the two go different ways from then on. `files`: the original's.
pub(crate) fn parting(
    request: &Request,
    reference: &Reply,
    ours: &Reply,
    files: &Path,
) -> Option<&'static str> {
    let granted = matches!(
        (request.cmd, reference.result(), ours.result()),
        (cmd::ACQUIRE | cmd::CONVERT, Some(-11), Some(0))
    );
    // Any other grant in the place of a refusal is none of ours to give.
    let left = || request.leases().any(|lease| has_left_shared(files, lease.lockspace, lease.name));
    (granted && left())
        .then_some("a shared holder that has given its host id up, which this host had before (W3, CE4)")
}

/// Why these two replies may differ, if they may.
pub(crate) fn reply(
    request: &Request,
    reference: &Reply,
    ours: &Reply,
    state: &State,
) -> Option<&'static str> {
    let (Reply::Message { header, payload, rest }, Reply::Message { header: other, .. }) = (reference, ours)
    else {
        return None;
    };
    // What else there is differs only where the results do.
    let alike = matches!(ours, Reply::Message { payload: p, rest: r, .. } if (p, r) == (payload, rest));
    let (reference, ours) = (header.result(), other.result());
    if reference == ours && !alike {
        return None;
    }
    let excuse = EXCUSES.iter().find(|excuse| (excuse.explains)(request, state, reference, ours));
    excuse.map(|excuse| excuse.reason)
}
