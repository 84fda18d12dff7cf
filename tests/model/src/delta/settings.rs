//! What a run of the model of host ids is about.

/// How often something may still happen, over both claimants together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// An operation hangs: it ends at any later time, before its limit or after it.
    pub hangs: u8,
    /// A daemon dies, and its process and its watchdog go on.
    pub deaths: u8,
    /// A host is reset from one moment to the next.
    pub resets: u8,
    /// A host stands still for as long as it pleases.
    pub freezes: u8,
    /// The same of a host that is joining, whatever is under way.
    pub early_freezes: u8,
    /// A claimant's process gives its lease up and the lockspace is left.
    pub leaves: u8,
    /// A claimant's clock gains or loses half a second.
    pub drifts: u8,
}

/// When the host name alone lets a claimant take a lease that is not free without the long wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejoin {
    /// Rule R7: only with the generation whose processes this machine knows to be gone.
    Vouched,
    /// As the original does: always.
    ByName,
}

/// When the third host begins to want the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Watch {
    /// There is none.
    Nobody,
    /// As soon as a claimant's process has it.
    AtOnce,
    /// At any time.
    AnyTime,
}

/// Something made wrong on purpose, so that a property must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Twist {
    /// Nothing.
    None,
    /// Watchdogs never fire.
    NoWatchdog,
    /// Nobody asks what the age of a lease demands.
    NoRecovery,
    /// Who has joined looks at its record no more.
    NoRenewals,
    /// Who joins after somebody else writes a generation of before that.
    OldGenerations,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often each claimant begins to join.
    pub starts: [u8; 2],
    /// Half seconds after which the second claimant does not begin any more, and nobody begins again.
    pub start_until: u16,
    /// Whether both claimants have the same host name.
    pub same_name: bool,
    /// Whether both machines have been up for the same time to the second, so that timestamps do not tell them apart.
    pub same_uptime: bool,
    /// What the name is worth.
    pub rejoin: Rejoin,
    /// The third host.
    pub watcher: Watch,
    /// Half seconds after which nothing begins to go wrong any more.
    pub faults_until: u16,
    /// Half seconds after which the run ends.
    pub horizon: u16,
    /// The faults.
    pub budget: Budget,
    /// What is bent.
    pub twist: Twist,
    /// The properties to look at.
    pub properties: Vec<super::Property>,
}

impl Settings {
    /// Two claimants, each of which joins once, and a watcher; no faults.
    #[must_use]
    pub fn new(horizon: u16) -> Self {
        Self {
            starts: [1, 1],
            start_until: horizon,
            same_name: false,
            same_uptime: false,
            rejoin: Rejoin::Vouched,
            watcher: Watch::AtOnce,
            faults_until: horizon,
            horizon,
            budget: Budget::default(),
            twist: Twist::None,
            properties: super::Property::ALL.to_vec(),
        }
    }
}
