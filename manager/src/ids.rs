//! Names of things within one life of the daemon; none is ever used twice.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);
    };
}

id!(
    /// A connection.
    ConnId
);
id!(
    /// A joined, or once joined, lockspace; shown as `space_id`.
    LockspaceId
);
id!(
    /// A resource that this host holds or works on; shown as `res_id`.
    ResourceId
);
id!(
    /// One run of an acquire, release or retract machine.
    TaskId
);
