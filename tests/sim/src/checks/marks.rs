//! How often interesting things happened: a run that reaches none of them proves nothing.

use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a run.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Marks {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Marks {
            /// Each counter with its name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Counters by their names; `None` if one of them is unknown.
            pub fn counted(of: impl Fn(&str) -> Option<u64>) -> Option<Self> {
                Some(Self { $($name: of(stringify!($name))?,)* })
            }

            /// Adds another run's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

marks! {
    /// Leases granted.
    acquired,
    /// Grants to a process that then holds leases of two lockspaces.
    acquired_in_both,
    /// Grants to a connection that its process had closed by then.
    granted_to_nobody,
    /// Shared holds granted.
    shared,
    /// Among them beside another process of the same host.
    shared_by_processes,
    /// Among them beside another host.
    shared_by_hosts,
    /// Refused because somebody shares it.
    refused_shared,
    /// Shared acquires that others, on their way to a shared hold, kept out to the end.
    crowded,
    /// Mode blocks cleared by other hosts.
    mode_blocks_cleared,
    /// Shared holds that became exclusive.
    converted_up,
    /// Exclusive holds that became shared.
    converted_down,
    /// Conversions that others kept from succeeding.
    converts_refused,
    /// Conversions that failed on the way.
    converts_failed,
    /// Conversions that left something in the leader.
    convert_leftovers,
    /// Attempts to take that back while the hold went on.
    erases,
    /// Conversions refused because other processes of the host share the lease.
    converts_beside_others,
    /// Leases that stayed when their process ended.
    orphaned,
    /// Exclusive ones among them that a later process took over.
    orphans_adopted,
    /// Released without a process.
    orphans_released,
    /// Value blocks set by holders.
    values_set,
    /// Read by holders.
    values_read,
    /// Read as another host had set them.
    values_of_others,
    /// Written.
    values_written,
    /// Refused, for want of one or because it could not be read.
    values_refused,
    /// Leases that got another name.
    renamed,
    /// Releases that could not give the new name, because the leader is not theirs any more.
    renames_refused,
    /// Releases that could not, because a slow commit has taken the lease back to a name of before.
    names_taken_back,
    /// Refused because the lease goes by another name.
    misnamed,
    /// Granted at the version demanded.
    demands_met,
    /// Refused because it is at another version than the one demanded.
    demands_refused,
    /// Processes told what they hold.
    inquired,
    /// Leases freed on disk.
    released,
    /// Refused because the owner lives.
    refused_live,
    /// Another host's value committed.
    adopted,
    /// A version lost to another host.
    lost,
    /// Success by another host's commit.
    committed_by_other,
    /// A silent owner replaced.
    taken_over,
    /// Refused because the leader was rolled back, and a living host may own a version that was passed over (rule R9).
    passed_over,
    /// Acquires that ended because of their lockspace.
    stopped_by_lockspace,
    /// Acquires that ended because their client was gone.
    stopped_by_client,
    /// Writes that landed after their timeout.
    late_landed,
    /// Leaders among them.
    late_leader_landed,
    /// Renewals among them that landed when their lockspace had been given up.
    late_delta_landed,
    /// Renewals that landed when another machine had taken the host id, after 8T + F.
    renewals_overtaken,
    /// Leaders that went back to an older version.
    rolled_back,
    /// Leaders of a version more than one ahead of the one on disk: repairs (rule R9).
    repaired,
    /// Leases taken back after an acquire of unknown outcome, or by flag.
    retracted,
    /// Disks that could not be opened.
    opens_failed,
    /// Hosts with another io timeout than most.
    other_timeouts,
    /// Hosts that name another lease's place for one disk of each lease.
    wrong_legs,
    /// Leases granted to them.
    acquired_beside_wrong,
    /// Leases that at the end such a host cannot give back.
    kept_for_good,
    /// Hosts whose wdmd is an old one.
    old_wdmds,
    /// Daemons that such a one let onto a host that was going to be reset.
    let_onto_doomed_hosts,
    /// Daemons started with a host id that is not their machine's own.
    misconfigured,
    /// Those with one that another machine had at the time.
    twins,
    /// Daemons started with a new host name.
    new_names,
    /// Joins that found somebody else on their host id.
    refused_ids,
    /// Joins that lost their host id to somebody who came at the same time.
    lost_ids,
    /// Machines that stood still as a whole, their clocks and watchdogs excepted.
    machines_stopped,
    /// Those that stood still with both for a moment.
    machines_suspended,
    /// Runs with more than eight hosts.
    many_hosts,
    /// Leases of several disks worked on with one of them not open.
    opened_in_part,
    /// Leases of several disks granted.
    acquired_on_legs,
    /// Among them with the leader on some of them only.
    acquired_on_some,
    /// Disks lost by all hosts.
    disks_lost,
    /// Disks that came back with old content, different from what they had.
    disks_old,
    /// Disks that failed for ever.
    disks_dead,
    /// Hosts reset.
    resets,
    /// Joins of hosts that were reset, with a smaller timestamp than their last one before.
    clocks_anew,
    /// Hosts reset by their watchdog.
    fired,
    /// Holders that this ended.
    saved_by_watchdog,
    /// Lockspaces that failed.
    failed_lockspaces,
    /// Expiries taken back.
    disarmed,
    /// Lockspaces whose watchdog was armed.
    armed,
    /// wdmd killed or standing still.
    wdmd_faults,
    /// Requests for leases written.
    requests,
    /// Taken back.
    requests_cleared,
    /// Not written: nobody owns the lease, it has that version, a later one was asked for, or the disk or the lockspace failed.
    requests_refused,
    /// Processes told because of one.
    requests_acted,
    /// Requests that were to be acted upon in time, and were.
    requests_in_time,
    /// Requests found for a version that is over.
    requests_old,
    /// Requests that a newer one took the place of before their time.
    requests_superseded,
    /// Requests whose lease had changed hands before their time.
    requests_outrun,
    /// Requests not acted upon because something kept one of the two hosts from it.
    requests_excused,
    /// Host events set.
    events_set,
    /// Taken back, or a host's bit.
    events_cleared,
    /// Refused, because another one was still shown, or the lockspace was not joined.
    events_refused,
    /// Delivered, each as often as it was.
    events_delivered,
    /// Events that were to be delivered in time, and were.
    events_in_time,
    /// Events that others took the place of before their time.
    events_superseded,
    /// Events not delivered because something kept one of the two hosts from it.
    events_excused,
    /// Signals sent.
    signals,
    /// Killpath programs run.
    killpaths,
    /// Lockspaces joined.
    joins,
    /// Joins over which an older write landed between their last read and their end.
    joins_overwritten,
    /// Joins that were allowed to skip the long wait.
    fast_rejoins,
    /// Host ids freed.
    left_orderly,
    /// Lockspaces left while a write of the host id lease could still land.
    drained_in_vain,
    /// Such writes that ended while the daemon went on.
    settled_late,
    /// Lockspaces left whose last write ended when others might have had the host id.
    overtaken,
    /// Resources whose format was begun.
    formats,
    /// Put off, because somebody used it.
    formats_put_off,
    /// Brought to an end.
    formats_done,
    /// That ended with an error.
    formats_failed,
    /// Cut off with their host's power, when the old lease was gone.
    formats_cut,
    /// Cut off in the middle of a write.
    formats_torn,
    /// Leases granted that are not formatted on every disk.
    granted_unformatted,
    /// Orphans in a lockspace where orphans count.
    orphans_counting,
    /// Orphans that count, whose daemon died.
    orphans_left_behind,
    /// Lockspaces in which orphans count from then on.
    orphans_flags,
    /// Joins with another io timeout than the host has in another lockspace.
    timeouts_by_lockspace,
    /// Joins with another io timeout than the time before.
    timeouts_changed,
    /// Runs with sectors of 4096 bytes and areas of 1 MiB.
    sizes_4096_1,
    /// Of 2 MiB.
    sizes_4096_2,
    /// Of 4 MiB.
    sizes_4096_4,
    /// Of 8 MiB.
    sizes_4096_8,
    /// Values refused because the area has no room for them.
    values_without_room,
    /// Daemons started again.
    restarts,
    /// Resources whose owner's generation fell.
    generations_fell,
    /// Versions that a reference peer used again.
    versions_reused,
    /// Owners that a reference peer replaced although they had just renewed once more: it had looked before that.
    overlooked,
    /// Owners that a reference peer replaced after the time of another instance, or its own, which was shorter than theirs.
    misjudged,
    /// Leases that a reference peer believed to have because another host's slow commit of what it had given up named it (W2, CE2).
    peers_deceived,
    /// Operations that went well.
    good_ios,
    /// Operations that were slow, but in time.
    slow_ios,
    /// Operations that failed.
    failed_ios,
    /// Operations that exceeded their limit.
    late_ios,
    /// Writes that had failed and landed later.
    doubtful_landed,
    /// Among them those that had failed after their limit.
    doubtful_landed_late,
    /// Writes that were refused, so that nothing landed.
    refused_writes,
    /// Writes of which a part was said to be written.
    short_writes,
    /// Operations on a lost path.
    lost_ios,
}

impl Marks {
    /// Counts a run with these sizes.
    pub(crate) fn sizes(&mut self, geometry: Geometry) {
        match (geometry.sector(), geometry.align()) {
            (SectorSize::B512, _) => {}
            (SectorSize::B4096, AlignSize::M1) => self.sizes_4096_1 += 1,
            (SectorSize::B4096, AlignSize::M2) => self.sizes_4096_2 += 1,
            (SectorSize::B4096, AlignSize::M4) => self.sizes_4096_4 += 1,
            (SectorSize::B4096, AlignSize::M8) => self.sizes_4096_8 += 1,
        }
    }
}
