//! Names of the things that events and actions speak of. None is ever used twice within a daemon's life, so a late event can
//! never be taken for one about something newer.

/// A client connection, numbered by the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// One instance of a lockspace: removing and adding it again gives another. Shown as `s<number>` in the log and as `space_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockspaceId(pub u32);

/// One instance of a resource on one of this host's lists. Shown as `r<number>` in the log and as `res_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub u32);

/// One disk task: an acquire, a release or a retract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub u64);

/// One state of a lockspace's rejoin record; later states have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordSeq(pub u64);
