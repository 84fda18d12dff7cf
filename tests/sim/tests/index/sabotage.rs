//! What can be broken, in the driver around the production machines.

/// One thing that is broken on every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// The lease of the index is taken without asking anybody.
    LeaseUnasked,
    /// Owners are taken for gone.
    OwnersDieYoung,
    /// A new resource is entered before its area is initialised.
    EntriesFirst,
    /// A deleted resource's area is cleared, its entry stays.
    DeletesKeepEntries,
    /// The index is changed as it was when this host read it first.
    IndexFromMemory,
    /// The entries are taken for those of the areas before theirs.
    EntriesElsewhere,
    /// The end of the lockspace is not noticed.
    GoneUnseen,
    /// A write that timed out counts as failed.
    LateForgotten,
    /// Nobody waits for what may still land.
    SettlesAtOnce,
    /// A write of the lease's that failed in doubt counts as over.
    DoubtsForgotten,
    /// What may still land is waited for until the lockspace is gone.
    SettlesUntilGone,
    /// What is looked up is not found.
    NothingFound,
    /// The lease is never given back.
    KeptForEver,
}

impl Sabotage {
    /// All, with the check that each must make fail.
    pub(crate) const ALL: [(Self, &'static str); 13] = [
        (Self::LeaseUnasked, "X1"),
        (Self::OwnersDieYoung, "X1"),
        (Self::EntriesFirst, "X2"),
        (Self::DeletesKeepEntries, "X3"),
        (Self::IndexFromMemory, "X4"),
        (Self::EntriesElsewhere, "X3"),
        (Self::GoneUnseen, "X6"),
        (Self::LateForgotten, "X7"),
        (Self::SettlesAtOnce, "X7"),
        (Self::DoubtsForgotten, "X7"),
        (Self::SettlesUntilGone, "X7"),
        (Self::NothingFound, "X5"),
        (Self::KeptForEver, "X8"),
    ];
}
