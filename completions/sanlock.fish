# fish completion for sanlock. Made from its help and manual by tests/manual.rs.

complete -c sanlock -f

# Whether the words so far lead to this command or action.
function __sanlock_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l where
    if set -q words[1]
        switch $words[1]
            case client direct
                set where $words[1]
                set -q words[2]; and set where "$words[1] $words[2]"
            case daemon who top explain check fsck exporter demo help version
                set where $words[1]
            case '*'
                set where "client $words[1]"
        end
    end
    test "$where" = "$argv[1]"
end

complete -c sanlock -n "__sanlock_at ''" -a daemon -d 'start the lock manager'
complete -c sanlock -n "__sanlock_at ''" -a client -d 'ask the daemon (may be left out)'
complete -c sanlock -n "__sanlock_at ''" -a direct -d 'access storage without the daemon, and without its protection'
complete -c sanlock -n "__sanlock_at ''" -a who -d 'show who holds a lease, and when it could be taken'
complete -c sanlock -n "__sanlock_at ''" -a top -d 'show lockspaces, hosts, leases and renewals on the terminal, kept up to date'
complete -c sanlock -n "__sanlock_at ''" -a explain -d 'say what a result number or an error name means, and what to do'
complete -c sanlock -n "__sanlock_at ''" -a check -d 'say whether this host and its storage are fit for leases'
complete -c sanlock -n "__sanlock_at ''" -a fsck -d 'say what is wrong with leases on storage, and repair it'
complete -c sanlock -n "__sanlock_at ''" -a exporter -d 'show the daemon\'s state to Prometheus'
complete -c sanlock -n "__sanlock_at ''" -a demo -d 'show two hosts locking each other out on a scratch file'
complete -c sanlock -n "__sanlock_at ''" -a help -d 'print this text'
complete -c sanlock -n "__sanlock_at ''" -a version -d 'print the version'
complete -c sanlock -n "__sanlock_at ''" -a status -d 'Shows the daemon\'s processes, lockspaces and leases'
complete -c sanlock -n "__sanlock_at ''" -a gets -d 'Lists the lockspaces, and the hosts in them'
complete -c sanlock -n "__sanlock_at ''" -a host_status -d 'Shows the last timestamp of every host that was seen, in one lockspace or in all'
complete -c sanlock -n "__sanlock_at ''" -a renewal -d 'Shows how long the last renewals took to read and to write'
complete -c sanlock -n "__sanlock_at ''" -a log_dump -d 'Prints the log that the daemon keeps in memory, debug messages included'
complete -c sanlock -n "__sanlock_at ''" -a shutdown -d 'Ends the daemon'
complete -c sanlock -n "__sanlock_at ''" -a init -d 'Formats a lockspace'
complete -c sanlock -n "__sanlock_at ''" -a read -d 'Has the daemon read a lease from the storage, and shows its names and version'
complete -c sanlock -n "__sanlock_at ''" -a align -d 'Shows the align size that leases on this storage get, in bytes'
complete -c sanlock -n "__sanlock_at ''" -a add_lockspace -d 'Joins a lockspace, with the host id in the string'
complete -c sanlock -n "__sanlock_at ''" -a inq_lockspace -d 'Tells whether a lockspace is joined'
complete -c sanlock -n "__sanlock_at ''" -a rem_lockspace -d 'Leaves a lockspace'
complete -c sanlock -n "__sanlock_at ''" -a command -d 'Acquires up to eight resources and becomes the command, which holds them until it ends'
complete -c sanlock -n "__sanlock_at ''" -a acquire -d 'Acquires resources for another process, which must have registered'
complete -c sanlock -n "__sanlock_at ''" -a convert -d 'Changes a lease that a process holds to shared if the string ends in SH, else to exclusive'
complete -c sanlock -n "__sanlock_at ''" -a release -d 'Releases leases of a process'
complete -c sanlock -n "__sanlock_at ''" -a inquire -d 'Lists the leases of a registered process'
complete -c sanlock -n "__sanlock_at ''" -a set_config -d 'Says that something the daemon does not see uses a lockspace, or that orphans count as users of it'
complete -c sanlock -n "__sanlock_at ''" -a request -d 'Asks the owner of a lease to give it up'
complete -c sanlock -n "__sanlock_at ''" -a examine -d 'Has the daemon look for requests of other hosts now'
complete -c sanlock -n "__sanlock_at ''" -a set_event -d 'Sends an event to the programs of another host that listen for events of this lockspace'
complete -c sanlock -n "__sanlock_at ''" -a format -d 'Formats a resource index'
complete -c sanlock -n "__sanlock_at ''" -a create -d 'Formats a resource in a free area and enters its name, which has to be given'
complete -c sanlock -n "__sanlock_at ''" -a delete -d 'Clears a resource and takes its name out'
complete -c sanlock -n "__sanlock_at ''" -a lookup -d 'Shows the name and place of an entry, or the first free place'
complete -c sanlock -n "__sanlock_at ''" -a update -d 'Changes an entry, and no lease'
complete -c sanlock -n "__sanlock_at ''" -a rebuild -d 'Makes the index anew from the leases that follow it'
complete -c sanlock -n "__sanlock_at 'client'" -a status -d 'Shows the daemon\'s processes, lockspaces and leases'
complete -c sanlock -n "__sanlock_at 'client'" -a gets -d 'Lists the lockspaces, and the hosts in them'
complete -c sanlock -n "__sanlock_at 'client'" -a host_status -d 'Shows the last timestamp of every host that was seen, in one lockspace or in all'
complete -c sanlock -n "__sanlock_at 'client'" -a renewal -d 'Shows how long the last renewals took to read and to write'
complete -c sanlock -n "__sanlock_at 'client'" -a log_dump -d 'Prints the log that the daemon keeps in memory, debug messages included'
complete -c sanlock -n "__sanlock_at 'client'" -a shutdown -d 'Ends the daemon'
complete -c sanlock -n "__sanlock_at 'client'" -a init -d 'Formats a lockspace'
complete -c sanlock -n "__sanlock_at 'client'" -a read -d 'Has the daemon read a lease from the storage, and shows its names and version'
complete -c sanlock -n "__sanlock_at 'client'" -a align -d 'Shows the align size that leases on this storage get, in bytes'
complete -c sanlock -n "__sanlock_at 'client'" -a add_lockspace -d 'Joins a lockspace, with the host id in the string'
complete -c sanlock -n "__sanlock_at 'client'" -a inq_lockspace -d 'Tells whether a lockspace is joined'
complete -c sanlock -n "__sanlock_at 'client'" -a rem_lockspace -d 'Leaves a lockspace'
complete -c sanlock -n "__sanlock_at 'client'" -a command -d 'Acquires up to eight resources and becomes the command, which holds them until it ends'
complete -c sanlock -n "__sanlock_at 'client'" -a acquire -d 'Acquires resources for another process, which must have registered'
complete -c sanlock -n "__sanlock_at 'client'" -a convert -d 'Changes a lease that a process holds to shared if the string ends in SH, else to exclusive'
complete -c sanlock -n "__sanlock_at 'client'" -a release -d 'Releases leases of a process'
complete -c sanlock -n "__sanlock_at 'client'" -a inquire -d 'Lists the leases of a registered process'
complete -c sanlock -n "__sanlock_at 'client'" -a set_config -d 'Says that something the daemon does not see uses a lockspace, or that orphans count as users of it'
complete -c sanlock -n "__sanlock_at 'client'" -a request -d 'Asks the owner of a lease to give it up'
complete -c sanlock -n "__sanlock_at 'client'" -a examine -d 'Has the daemon look for requests of other hosts now'
complete -c sanlock -n "__sanlock_at 'client'" -a set_event -d 'Sends an event to the programs of another host that listen for events of this lockspace'
complete -c sanlock -n "__sanlock_at 'client'" -a version -d 'Prints the versions of this command, of the daemon and of the protocol'
complete -c sanlock -n "__sanlock_at 'client'" -a format -d 'Formats a resource index'
complete -c sanlock -n "__sanlock_at 'client'" -a create -d 'Formats a resource in a free area and enters its name, which has to be given'
complete -c sanlock -n "__sanlock_at 'client'" -a delete -d 'Clears a resource and takes its name out'
complete -c sanlock -n "__sanlock_at 'client'" -a lookup -d 'Shows the name and place of an entry, or the first free place'
complete -c sanlock -n "__sanlock_at 'client'" -a update -d 'Changes an entry, and no lease'
complete -c sanlock -n "__sanlock_at 'client'" -a rebuild -d 'Makes the index anew from the leases that follow it'
complete -c sanlock -n "__sanlock_at 'direct'" -a init -d 'Formats a lockspace'
complete -c sanlock -n "__sanlock_at 'direct'" -a read_leader -d 'Prints every field of a record, one on each line'
complete -c sanlock -n "__sanlock_at 'direct'" -a read -d 'Prints names and version of a lease in one line'
complete -c sanlock -n "__sanlock_at 'direct'" -a write_leader -d 'Changes fields of a record to the values in a file, in the form that read_leader prints'
complete -c sanlock -n "__sanlock_at 'direct'" -a acquire -d 'Takes a lease in the name of a host, unless that host holds it shared (-11)'
complete -c sanlock -n "__sanlock_at 'direct'" -a release -d 'Gives up what that generation of a host owns or shares'
complete -c sanlock -n "__sanlock_at 'direct'" -a acquire_id -d 'Takes a host id, with the waits that this needs'
complete -c sanlock -n "__sanlock_at 'direct'" -a renew_id -d 'Renews a host id once, with this io timeout'
complete -c sanlock -n "__sanlock_at 'direct'" -a release_id -d 'Gives a host id up, whoever uses it'
complete -c sanlock -n "__sanlock_at 'direct'" -a dump -d 'Prints a table of the leases on a storage, up to the first area without one unless a size is given'
complete -c sanlock -n "__sanlock_at 'direct'" -a next_free -d 'Prints where the first area without a lease begins, counted from the offset'
complete -c sanlock -n "__sanlock_at 'direct'" -a format -d 'Formats a resource index'
complete -c sanlock -n "__sanlock_at 'direct'" -a lookup -d 'Shows an entry of a resource index, or its first free place'
complete -c sanlock -n "__sanlock_at 'direct'" -a update -d 'Changes an entry of a resource index'
complete -c sanlock -n "__sanlock_at 'direct'" -a rebuild -d 'Makes a resource index anew from the leases that follow it'
complete -c sanlock -n "__sanlock_at 'daemon'" -s D -d 'stay in the foreground and log everything to stderr'
complete -c sanlock -n "__sanlock_at 'daemon'" -s Q -x -a '0 1' -d 'log common lock contention quietly (1)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s R -x -a '0 1' -d 'log every renewal (0)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s H -x -d 'entries of the renewal history, 0 for none (180)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s L -x -d 'log to the log file up to this priority, -1 for none (4, warning)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s S -x -d 'log to syslog up to this priority, -1 for none (3, error)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s U -x -a '(__fish_complete_users)' -d 'user to run as (sanlock, if user and group sanlock exist)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s G -x -a '(__fish_complete_groups)' -d 'group to run as (likewise)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s t -x -d 'most worker threads (8)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s g -x -d 'seconds for graceful recovery, 0 to 60 (34; 40 without watchdog)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s w -x -a '0 1' -d 'use the watchdog through wdmd (1)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s h -x -a '0 1' -d 'use real-time scheduling (0)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s l -x -a '0 1 2' -d 'lock memory: 0 none, 1 current, 2 current and future (1)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s a -x -a '0 1' -d 'without effect: every transfer has a time limit (1)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s b -x -d 'seconds a bit stays set in the host_id bitmap (6 * io timeout)'
complete -c sanlock -n "__sanlock_at 'daemon'" -s e -x -d 'host name written into host_id leases (generated)'
complete -c sanlock -n "__sanlock_at 'who'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'who'" -l watch -x
complete -c sanlock -n "__sanlock_at 'who'" -l json
complete -c sanlock -n "__sanlock_at 'who'" -F
complete -c sanlock -n "__sanlock_at 'top'" -l interval -x
complete -c sanlock -n "__sanlock_at 'top'" -l sort -x -a 'name left latency'
complete -c sanlock -n "__sanlock_at 'top'" -l once
complete -c sanlock -n "__sanlock_at 'check'" -l seconds -x
complete -c sanlock -n "__sanlock_at 'check'" -l io-timeout -x
complete -c sanlock -n "__sanlock_at 'check'" -l sysroot -r -F
complete -c sanlock -n "__sanlock_at 'check'" -l json
complete -c sanlock -n "__sanlock_at 'check'" -F
complete -c sanlock -n "__sanlock_at 'fsck'" -l lockspace -r -F
complete -c sanlock -n "__sanlock_at 'fsck'" -l repair
complete -c sanlock -n "__sanlock_at 'fsck'" -l save -r -F
complete -c sanlock -n "__sanlock_at 'fsck'" -l no-wait
complete -c sanlock -n "__sanlock_at 'fsck'" -l io-timeout -x
complete -c sanlock -n "__sanlock_at 'fsck'" -l fire-timeout -x
complete -c sanlock -n "__sanlock_at 'fsck'" -l json
complete -c sanlock -n "__sanlock_at 'fsck'" -F
complete -c sanlock -n "__sanlock_at 'exporter'" -l listen -x
complete -c sanlock -n "__sanlock_at 'exporter'" -l textfile -r -F
complete -c sanlock -n "__sanlock_at 'exporter'" -l interval -x
complete -c sanlock -n "__sanlock_at 'exporter'" -l timeout -x
complete -c sanlock -n "__sanlock_at 'exporter'" -l once
complete -c sanlock -n "__sanlock_at 'demo'" -l dir -r -F
complete -c sanlock -n "__sanlock_at 'demo'" -l quick
complete -c sanlock -n "__sanlock_at 'demo'" -l device -r -F
complete -c sanlock -n "__sanlock_at 'demo'" -l yes-overwrite
complete -c sanlock -n "__sanlock_at 'client status'" -s D
complete -c sanlock -n "__sanlock_at 'client status'" -s o -x -a 'p s'
complete -c sanlock -n "__sanlock_at 'client status'" -l json
complete -c sanlock -n "__sanlock_at 'client gets'" -s h -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client gets'" -l json
complete -c sanlock -n "__sanlock_at 'client host_status'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client host_status'" -s D
complete -c sanlock -n "__sanlock_at 'client host_status'" -l json
complete -c sanlock -n "__sanlock_at 'client renewal'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client renewal'" -l json
complete -c sanlock -n "__sanlock_at 'client renewal'" -l plot -r -F
complete -c sanlock -n "__sanlock_at 'client shutdown'" -s f -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client shutdown'" -s w -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client shutdown'" -l progress
complete -c sanlock -n "__sanlock_at 'client init'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client init'" -s o -x
complete -c sanlock -n "__sanlock_at 'client init'" -s Z -x -a '512 4096'
complete -c sanlock -n "__sanlock_at 'client init'" -s A -x -a '1M 2M 4M 8M'
complete -c sanlock -n "__sanlock_at 'client init'" -l progress
complete -c sanlock -n "__sanlock_at 'client init'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'client init'" -s n -x
complete -c sanlock -n "__sanlock_at 'client init'" -s z -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client read'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client read'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'client read'" -s h -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client read'" -s D
complete -c sanlock -n "__sanlock_at 'client read'" -l json
complete -c sanlock -n "__sanlock_at 'client align'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client add_lockspace'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client add_lockspace'" -s o -x
complete -c sanlock -n "__sanlock_at 'client add_lockspace'" -l progress
complete -c sanlock -n "__sanlock_at 'client inq_lockspace'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client rem_lockspace'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client rem_lockspace'" -l progress
complete -c sanlock -n "__sanlock_at 'client command'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'client command'" -s O -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client command'" -s P -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client command'" -s n -x
complete -c sanlock -n "__sanlock_at 'client command'" -l progress
complete -c sanlock -n "__sanlock_at 'client command'" -s c -r -F
complete -c sanlock -n "__sanlock_at 'client acquire'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'client acquire'" -s p -x -a '(__fish_complete_pids)'
complete -c sanlock -n "__sanlock_at 'client acquire'" -s O -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client acquire'" -s P -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client acquire'" -s n -x
complete -c sanlock -n "__sanlock_at 'client acquire'" -l progress
complete -c sanlock -n "__sanlock_at 'client convert'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'client convert'" -s p -x -a '(__fish_complete_pids)'
complete -c sanlock -n "__sanlock_at 'client release'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'client release'" -s p -x -a '(__fish_complete_pids)'
complete -c sanlock -n "__sanlock_at 'client release'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client release'" -s a -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client release'" -s O -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client inquire'" -s p -x -a '(__fish_complete_pids)'
complete -c sanlock -n "__sanlock_at 'client inquire'" -s D
complete -c sanlock -n "__sanlock_at 'client inquire'" -l json
complete -c sanlock -n "__sanlock_at 'client set_config'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client set_config'" -s u -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client set_config'" -s O -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'client request'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'client request'" -s f -x -a '0 1 2'
complete -c sanlock -n "__sanlock_at 'client examine'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client examine'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'client set_event'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'client set_event'" -s i -x
complete -c sanlock -n "__sanlock_at 'client set_event'" -s g -x
complete -c sanlock -n "__sanlock_at 'client set_event'" -s e -x
complete -c sanlock -n "__sanlock_at 'client set_event'" -s d -x
complete -c sanlock -n "__sanlock_at 'client format'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'client format'" -s Z -x -a '512 4096'
complete -c sanlock -n "__sanlock_at 'client format'" -s A -x -a '1M 2M 4M 8M'
complete -c sanlock -n "__sanlock_at 'client create'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'client create'" -s e -x
complete -c sanlock -n "__sanlock_at 'client create'" -s n -x
complete -c sanlock -n "__sanlock_at 'client delete'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'client delete'" -s e -x
complete -c sanlock -n "__sanlock_at 'client lookup'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'client lookup'" -s e -x
complete -c sanlock -n "__sanlock_at 'client update'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'client update'" -s e -x
complete -c sanlock -n "__sanlock_at 'client update'" -s z -x
complete -c sanlock -n "__sanlock_at 'client rebuild'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'direct init'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'direct init'" -s o -x
complete -c sanlock -n "__sanlock_at 'direct init'" -s Z -x -a '512 4096'
complete -c sanlock -n "__sanlock_at 'direct init'" -s A -x -a '1M 2M 4M 8M'
complete -c sanlock -n "__sanlock_at 'direct init'" -l progress
complete -c sanlock -n "__sanlock_at 'direct init'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'direct init'" -s n -x
complete -c sanlock -n "__sanlock_at 'direct init'" -s z -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'direct read_leader'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'direct read_leader'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'direct read_leader'" -l json
complete -c sanlock -n "__sanlock_at 'direct read'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'direct read'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'direct read'" -l json
complete -c sanlock -n "__sanlock_at 'direct write_leader'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'direct write_leader'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'direct write_leader'" -s F -r -F
complete -c sanlock -n "__sanlock_at 'direct write_leader'" -s f -x -a '0 1'
complete -c sanlock -n "__sanlock_at 'direct acquire'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'direct acquire'" -s i -x
complete -c sanlock -n "__sanlock_at 'direct acquire'" -s g -x
complete -c sanlock -n "__sanlock_at 'direct acquire'" -s o -x
complete -c sanlock -n "__sanlock_at 'direct acquire'" -l progress
complete -c sanlock -n "__sanlock_at 'direct release'" -s r -r -F
complete -c sanlock -n "__sanlock_at 'direct release'" -s i -x
complete -c sanlock -n "__sanlock_at 'direct release'" -s g -x
complete -c sanlock -n "__sanlock_at 'direct release'" -s o -x
complete -c sanlock -n "__sanlock_at 'direct acquire_id'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'direct acquire_id'" -s e -x
complete -c sanlock -n "__sanlock_at 'direct acquire_id'" -s o -x
complete -c sanlock -n "__sanlock_at 'direct acquire_id'" -l progress
complete -c sanlock -n "__sanlock_at 'direct renew_id'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'direct renew_id'" -s o -x
complete -c sanlock -n "__sanlock_at 'direct release_id'" -s s -r -F
complete -c sanlock -n "__sanlock_at 'direct release_id'" -s o -x
complete -c sanlock -n "__sanlock_at 'direct dump'" -s f -x -a '1 2'
complete -c sanlock -n "__sanlock_at 'direct dump'" -s Z -x -a '512 4096'
complete -c sanlock -n "__sanlock_at 'direct dump'" -s A -x -a '1M 2M 4M 8M'
complete -c sanlock -n "__sanlock_at 'direct dump'" -l json
complete -c sanlock -n "__sanlock_at 'direct dump'" -F
complete -c sanlock -n "__sanlock_at 'direct next_free'" -s Z -x -a '512 4096'
complete -c sanlock -n "__sanlock_at 'direct next_free'" -s A -x -a '1M 2M 4M 8M'
complete -c sanlock -n "__sanlock_at 'direct next_free'" -F
complete -c sanlock -n "__sanlock_at 'direct format'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'direct format'" -s Z -x -a '512 4096'
complete -c sanlock -n "__sanlock_at 'direct format'" -s A -x -a '1M 2M 4M 8M'
complete -c sanlock -n "__sanlock_at 'direct lookup'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'direct lookup'" -s e -x
complete -c sanlock -n "__sanlock_at 'direct update'" -s x -r -F
complete -c sanlock -n "__sanlock_at 'direct update'" -s e -x
complete -c sanlock -n "__sanlock_at 'direct update'" -s z -x
complete -c sanlock -n "__sanlock_at 'direct rebuild'" -s x -r -F
