//! Everything that can be wrong: its stable name, how bad it is, what it means for users, and what to do.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Odd, and nothing fails because of it.
    Note,
    /// Something cannot be used, may be used twice, or is lost.
    Damage,
}

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $level:ident, $means:literal, $advice:literal;)*) => {
        /// What can be wrong with what lies on a disk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Problem {
            $($(#[$doc])* $name,)*
        }

        impl Problem {
            /// All of them, in the order of the manual.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name, which does not change between versions.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// How bad it is.
            #[must_use]
            pub fn level(self) -> Level {
                match self { $(Self::$name => Level::$level,)* }
            }

            /// What it means for those who use the lease.
            #[must_use]
            pub fn means(self) -> &'static str {
                match self { $(Self::$name => $means,)* }
            }

            /// What to do about it.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)* }
            }
        }
    };
}

problems! {
    /// The area does not fit the storage.
    AreaShort = "area-short", Damage,
        "whole areas are read: a lockspace cut short is lost by hosts of the original at their next renewal, a lease cut short cannot be acquired",
        "make the file or device larger; nothing that was inside it is lost by that";

    /// A host id's sector holds something else.
    HostMagic = "host-id-magic", Damage,
        "this host id cannot be joined (-223), leases it owns cannot be taken over, and a host that runs with it loses the lockspace at its next renewal",
        "stop the host that uses this id, then repair";
    /// A version that nobody knows.
    HostVersion = "host-id-version", Damage,
        "this host id cannot be joined (-224), and leases it owns cannot be taken over",
        "stop the host that uses this id, then repair";
    /// The record of another lockspace.
    HostLockspace = "host-id-lockspace", Damage,
        "two lockspaces overlap, or one was formatted over another: this host id cannot be joined (-226), and hosts of both overwrite each other",
        "find out which lockspace belongs here, give the other one another place, and format it anew while no host uses it";
    /// The bytes are damaged.
    HostChecksum = "host-id-checksum", Damage,
        "this host id cannot be joined (-229), leases it owns cannot be taken over, and a host that runs with it loses the lockspace at its next renewal",
        "stop the host that uses this id, then repair";
    /// Other sizes than its neighbours.
    HostSizes = "host-id-sizes", Damage,
        "a host that finds its place by this record works on the sectors of other hosts",
        "join no host that is not joined already before this is repaired";
    /// The record of another host id.
    HostOwner = "host-id-owner", Damage,
        "a host wrote its record to the wrong place, or storage did: the two hosts lose the lockspace, and leases of this host id may be judged by the other host's life",
        "find the host named in the record and stop it, then repair";
    /// Fields that exclude each other.
    HostState = "host-id-state", Damage,
        "no program writes such a record: the host id may be taken for held, or for free, when it is not",
        "stop the host that uses this id, then repair";
    /// The last generation there is.
    HostGeneration = "host-id-generation", Damage,
        "no host reaches this generation by counting, and there is none after it: once nobody holds this host id, it cannot be joined again (-229)",
        "stop the host that uses this id, then repair";
    /// Nobody can have this io timeout.
    HostIoTimeout = "host-id-io-timeout", Damage,
        "others reckon with another time than the host itself: it may be presumed dead while it lives",
        "remove the lockspace on that host and add it again with an io timeout of 1 to 255";
    /// Compare-and-write in a version that does not know it.
    HostCaw = "host-id-caw", Damage,
        "hosts of sanlock 5 change this record by compare-and-write, all others by plain writes: two hosts may get one id",
        "format the lockspace anew while no host uses it";
    /// One name, several ids.
    HostNameTwice = "host-name-twice", Note,
        "two host ids are held under one host name: two machines with one name, or one that joined twice. Messages cannot tell them apart",
        "give every machine a name of its own (`our_host_name`)";
    /// Something behind the last host id.
    LockspaceTail = "lockspace-tail", Note,
        "bytes behind the last host id are not zero; nobody reads them",
        "look whether something else was placed into the lockspace's area";

    /// No lease.
    LeaderMagic = "leader-magic", Damage,
        "the lease was overwritten, or its format was interrupted: it cannot be acquired (-223), and who owned it is lost",
        "when every host has stopped using it, format it anew with `sanlock direct init`; its lease version begins at 0 then";
    /// A version that nobody knows.
    LeaderVersion = "leader-version", Damage,
        "the lease cannot be acquired (-224)",
        "use a program of the right version, or format it anew while nobody uses it";
    /// The bytes are damaged.
    LeaderChecksum = "leader-checksum", Damage,
        "the lease cannot be acquired (-229); whether somebody owns it cannot be told",
        "when every host has stopped using it: if `sanlock direct read_leader` shows the right fields, `sanlock direct write_leader` gives it a new checksum, otherwise format it anew";
    /// Sizes that do not exist.
    LeaderSizes = "leader-sizes", Damage,
        "nobody knows where its records are; the original crashes on such a lease",
        "format it anew while nobody uses it";
    /// More hosts than there is room for.
    LeaderNumHosts = "leader-num-hosts", Damage,
        "the lease cannot be acquired (-228; 3.8.5: -214, and its daemon may crash)",
        "stop all hosts of the lockspace, then repair";
    /// A wrong stride of ballot numbers.
    LeaderMaxHosts = "leader-max-hosts", Damage,
        "hosts that go by this number may use one ballot number twice: two of them may own the lease at once",
        "acquire it nowhere before this is repaired";
    /// Nobody can be the owner.
    LeaderOwner = "leader-owner", Damage,
        "an owner that cannot exist never gives the lease back: it cannot be acquired (-229; the original may crash)",
        "stop all hosts of the lockspace, then repair";
    /// The last version there is.
    LeaderLast = "leader-last-version", Damage,
        "no lease reaches this version by counting, and there is none after it: whoever owns the lease keeps it, and nobody can acquire it again (-229)",
        "when every host has stopped using it, format it anew with `sanlock direct init`; its lease version begins at 0 then";
    /// Cleared.
    LeaderCleared = "leader-cleared", Note,
        "the lease was cleared: it cannot be acquired until it is formatted again",
        "nothing, or `sanlock direct init`";
    /// Compare-and-write.
    LeaderCaw = "compare-and-write", Note,
        "only sanlock 5 can use it, by compare-and-write",
        "nothing, if all its hosts run that";
    /// The request record holds something else.
    RequestMagic = "request-magic", Damage,
        "nobody can ask for the lease (-270); acquiring it works",
        "stop all hosts of the lockspace, then repair; only a pending request is lost";
    /// A version that nobody knows.
    RequestVersion = "request-version", Damage,
        "nobody can ask for the lease (-271); acquiring it works",
        "stop all hosts of the lockspace, then repair; only a pending request is lost";
    /// Nobody asks like that.
    RequestMode = "request-mode", Damage,
        "the owner is asked for something that does not exist; with FORCE set by accident its process may be killed",
        "stop all hosts of the lockspace, then repair; only a pending request is lost";
    /// A damaged ballot record.
    BallotChecksum = "ballot-checksum", Damage,
        "nobody can acquire the lease (-214), because the damaged record may name the owner that was chosen last",
        "stop all hosts of the lockspace, then repair";
    /// A number that this host never uses.
    BallotNumber = "ballot-number", Damage,
        "another host may use the same ballot number: two of them may own the lease at once",
        "stop all hosts of the lockspace, then repair";
    /// A value accepted in a ballot that did not begin.
    BallotOrder = "ballot-order", Damage,
        "the record contradicts itself: a later ballot may choose a value that nobody proposed",
        "stop all hosts of the lockspace, then repair";
    /// A value that names nobody.
    BallotValue = "ballot-value", Damage,
        "the next ballot may make an owner of a host that cannot exist, and the lease is lost then",
        "stop all hosts of the lockspace, then repair";
    /// The leader is older than the ballots.
    BallotAhead = "ballot-ahead", Damage,
        "a late write brought an older leader back: hosts of 3.8.5 try for ever; ours repair it at the next acquire, or name the host that is in the way (-212)",
        "acquire it once with this program, or stop all hosts of the lockspace and repair";
    /// A host that the leader hides.
    BallotHidden = "ballot-hidden", Damage,
        "the leader's number of hosts leaves out a host that takes part: hosts of 3.8.5 do not see it, so it may own the lease beside another one",
        "acquire it once with this program, or with a larger number of hosts (-n)";
    /// Unknown bits.
    ModeFlags = "mode-flags", Damage,
        "the record of shared holds has no checksum, and these bits have no meaning: it is damaged, and a shared hold may be lost or made up",
        "stop all hosts of the lockspace, then repair";
    /// Half a hold.
    ModeHold = "mode-hold", Damage,
        "half of a shared hold is there: either the lease is held shared and another host may take it exclusively beside it, or it is not and nobody can take it exclusively",
        "stop all hosts of the lockspace, then repair";
    /// A generation that never was.
    OwnerUnknown = "owner-unknown", Damage,
        "the owner joined with a generation that its host id never had: the lockspace was formatted anew, or another one is meant. The lease is taken over only after the wait for a dead host, and not while that host id is in use",
        "make sure that the lockspace is the right one, and that no process of its earlier life runs anywhere";
    /// The same, of a shared hold.
    SharedUnknown = "shared-unknown", Damage,
        "a shared hold with a generation that its host id never had: the lockspace was formatted anew, or another one is meant. It is cleared only after the wait for a dead host, and not while that host id is in use",
        "make sure that the lockspace is the right one, and that no process of its earlier life runs anywhere";
    /// Sizes that 3.8.5 cannot work with.
    SizesDiffer = "sizes-differ", Note,
        "the lease has other sizes than its lockspace: hosts of 3.8.5 mostly cannot acquire it (-214, -90)",
        "format it with the sizes of its lockspace while nobody uses it";
    /// One name, several places.
    ResourceTwice = "resource-twice", Note,
        "two leases have one name: hosts that use different ones do not lock each other out",
        "look which one the users are configured with, and clear the other (`sanlock direct init -z 1`)";

    /// No index header where one belongs.
    IndexMagic = "index-magic", Damage,
        "the index cannot be used (-274); its leases can, by their offsets",
        "note the names and offsets that `sanlock direct dump PATH:OFFSET` shows from the areas behind it on, then format the index again and `sanlock direct rebuild` it";
    /// A version that nobody knows.
    IndexVersion = "index-version", Damage,
        "the index cannot be used (-275); its leases can, by their offsets",
        "use a program of the right version";
    /// Two names.
    IndexLockspace = "index-lockspace", Damage,
        "index and internal lease belong to different lockspaces: under one name it is refused (-276), under the other it cannot be changed (-226)",
        "find out which lockspace is right, then format the index again and rebuild it";
    /// It was copied, or moved.
    IndexPlace = "index-place", Damage,
        "the index says that it lies elsewhere: it is refused (-277)",
        "if the storage was copied to another offset, use it there; otherwise format the index again and rebuild it";
    /// Sizes that do not exist.
    IndexSizes = "index-sizes", Damage,
        "nobody knows where its leases are",
        "format the index again and rebuild it";
    /// The lease that guards the index.
    IndexLease = "index-lease", Damage,
        "the lease that guards the index is not there: nothing can be created or deleted",
        "when no host uses the index: `sanlock direct init -r LOCKSPACE:rindex_lease:PATH:OFFSET`";
    /// An entry that points elsewhere.
    EntryOffset = "entry-offset", Damage,
        "programs that go by this number use another lease than those that go by the entry's position",
        "stop all hosts of the lockspace, then repair";
    /// An entry without a lease.
    EntryDangling = "entry-dangling", Damage,
        "the resource is found, and cannot be acquired (-223): its lease was overwritten",
        "when nobody uses the resource, format its lease again, or remove the entry (`sanlock client update -z 1`)";
    /// An entry of a deleted resource.
    EntryCleared = "entry-cleared", Damage,
        "the resource was deleted, or is half deleted: it is found, and cannot be acquired (-223)",
        "stop all hosts of the lockspace, then repair; or remove the entry (`sanlock client update -z 1`)";
    /// An entry of another name.
    EntryName = "entry-name", Damage,
        "the resource is found under a name by which its lease cannot be acquired (-227): it was renamed, or the entry is damaged",
        "stop all hosts of the lockspace, then repair; or enter the right name (`sanlock client update`)";
    /// A lease without an entry.
    EntryMissing = "entry-missing", Damage,
        "the next create formats this place for another resource, whoever holds the lease in it",
        "create nothing in this index before it is repaired, or rebuilt (`sanlock client rebuild`)";
    /// One name, several entries.
    EntryTwice = "entry-name-twice", Damage,
        "only the first of the two is found by its name: hosts that look one up, and hosts that know the other's offset, do not lock each other out",
        "find out which one is in use, and remove the other (`sanlock client update -z 1`)";
    /// A lease of another lockspace.
    EntryLockspace = "entry-lockspace", Damage,
        "the resource is found, and cannot be acquired (-226): its lease belongs to another lockspace",
        "find out who placed it there before anything is created in this index";
    /// Something in the fields without a meaning.
    EntryFields = "entry-fields", Note,
        "fields without a meaning are not zero, or the entry has no name; it is used all the same",
        "nothing";

    /// Leaders that exclude each other.
    DisksContradict = "disks-contradict", Damage,
        "the disks name different owners for one version: the lease cannot be acquired (-222)",
        "when every host has stopped using it, format it anew";
    /// Disks that were not one lease.
    DisksDiffer = "disks-differ", Damage,
        "these are no disks of one lease: sizes or names differ",
        "look whether the paths and offsets are the right ones";
    /// A disk that missed something.
    DisksBehind = "disks-behind", Note,
        "a disk has an older leader than the others, as after a failure; the next acquire brings it up to date",
        "nothing, if the disk works";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_problem_has_a_name_of_its_own_and_says_what_it_means_and_what_to_do() {
        let names: HashSet<_> = Problem::ALL.iter().map(|p| p.code()).collect();
        assert_eq!(names.len(), Problem::ALL.len());
        for problem in Problem::ALL {
            assert!(problem.code().bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{problem:?}");
            assert!(problem.means().len() > 20 && !problem.advice().is_empty(), "{problem:?}");
        }
    }
}
