//! The usage text (command-line.md 6): the same order as the original's, and only what this version can do.

/// What `sanlock help` prints.
pub(crate) const USAGE: &str = "\
Usage:
sanlock <command> <action> ...

commands:
  daemon        start the lock manager
  client        ask the daemon (may be left out)
  direct        access storage without the daemon, and without its protection
  who           show who holds a lease, and when it could be taken
  top           show lockspaces, hosts, leases and renewals on the terminal, kept up to date
  explain       say what a result number or an error name means, and what to do
  check         say whether this host and its storage are fit for leases
  fsck          say what is wrong with leases on storage, and repair it
  exporter      show the daemon's state to Prometheus
  demo          show two hosts locking each other out on a scratch file
  help          print this text
  version       print the version

Options are single letters, each followed by its value as a separate argument; the long ones are
additions: --json prints an object, --plot draws a picture, --progress says on stderr what is
waited for, as it is said on a terminal.

sanlock daemon [options]
  -D            stay in the foreground and log everything to stderr
  -Q 0|1        log common lock contention quietly (1)
  -R 0|1        log every renewal (0)
  -H <num>      entries of the renewal history, 0 for none (180)
  -L <pri>      log to the log file up to this priority, -1 for none (4, warning)
  -S <pri>      log to syslog up to this priority, -1 for none (3, error)
  -U <user>     user to run as (sanlock, if user and group sanlock exist)
  -G <group>    group to run as (likewise)
  -t <num>      most worker threads (8)
  -g <sec>      seconds for graceful recovery, 0 to 60 (34; 40 without watchdog)
  -w 0|1        use the watchdog through wdmd (1)
  -h 0|1        use real-time scheduling (0)
  -l 0|1|2      lock memory: 0 none, 1 current, 2 current and future (1)
  -a 0|1        without effect: every transfer has a time limit (1)
  -b <sec>      seconds a bit stays set in the host_id bitmap (6 * io timeout)
  -e <name>     host name written into host_id leases (generated)

sanlock client status [-D] [-o p|s] [--json]
sanlock client gets [-h 0|1] [--json]
sanlock client host_status [-s LOCKSPACE] [-D] [--json]
sanlock client renewal -s LOCKSPACE [--json] [--plot <file>]
sanlock client log_dump
sanlock client shutdown [-f 0|1] [-w 0|1] [--progress]
sanlock client init -s LOCKSPACE [-o <sec>] [-Z 512|4096 -A 1M|2M|4M|8M] [--progress]
sanlock client init -r RESOURCE [-n <num_hosts>] [-z 0|1] [-Z 512|4096 -A 1M|2M|4M|8M] [--progress]
sanlock client read -s LOCKSPACE | -r RESOURCE [-h 0|1] [-D] [--json]
sanlock client align -s LOCKSPACE
sanlock client add_lockspace -s LOCKSPACE [-o <sec>] [--progress]
sanlock client inq_lockspace -s LOCKSPACE
sanlock client rem_lockspace -s LOCKSPACE [--progress]
sanlock client command -r RESOURCE [-O 0|1] [-P 0|1] [-n <num_hosts>] [--progress] -c <path> <args>
sanlock client acquire -r RESOURCE -p <pid> [-O 0|1] [-P 0|1] [-n <num_hosts>] [--progress]
sanlock client convert -r RESOURCE -p <pid>
sanlock client release -r RESOURCE -p <pid> [-s LOCKSPACE] [-a 0|1] [-O 0|1]
sanlock client inquire -p <pid> [-D] [--json]
sanlock client set_config -s LOCKSPACE [-u 0|1] [-O 0|1]
sanlock client request -r RESOURCE:<lver> -f 0|1|2
sanlock client examine -s LOCKSPACE | -r RESOURCE
sanlock client set_event -s LOCKSPACE -i <host_id> [-g <generation>] -e <event> [-d <data>]
sanlock client version

sanlock client format -x RINDEX [-Z 512|4096 -A 1M|2M|4M|8M]
sanlock client create -x RINDEX -e <resource_name> [-n <num_hosts>]
sanlock client delete -x RINDEX -e <resource_name>
sanlock client lookup -x RINDEX [-e RENTRY]
sanlock client update -x RINDEX -e RENTRY [-z 1]
sanlock client rebuild -x RINDEX

sanlock direct init -s LOCKSPACE [-o <sec>] [-Z 512|4096 -A 1M|2M|4M|8M] [--progress]
sanlock direct init -r RESOURCE [-n <num_hosts>] [-z 0|1] [-Z 512|4096 -A 1M|2M|4M|8M] [--progress]
sanlock direct read_leader -s LOCKSPACE | -r RESOURCE [--json]
sanlock direct read -s LOCKSPACE | -r RESOURCE [--json]
sanlock direct write_leader -s LOCKSPACE | -r RESOURCE -F <file> [-f 0|1]
sanlock direct acquire -r RESOURCE -i <host_id> -g <generation> [-o <sec>] [--progress]
sanlock direct release -r RESOURCE [-i <host_id> -g <generation>] [-o <sec>]
sanlock direct acquire_id -s LOCKSPACE [-e <name>] [-o <sec>] [--progress]
sanlock direct renew_id -s LOCKSPACE [-o <sec>]
sanlock direct release_id -s LOCKSPACE [-o <sec>]
sanlock direct dump <path>[:<offset>[:<size>]] [-f 1|2] [-Z 512|4096 -A 1M|2M|4M|8M] [--json]
sanlock direct next_free <path>[:<offset>] [-Z 512|4096 -A 1M|2M|4M|8M]
sanlock direct format -x RINDEX [-Z 512|4096 -A 1M|2M|4M|8M]
sanlock direct lookup -x RINDEX [-e RENTRY]
sanlock direct update -x RINDEX -e RENTRY [-z 1]
sanlock direct rebuild -x RINDEX

sanlock who [-s LOCKSPACE] [--watch <sec>] [--json] <lease>
sanlock top [--interval <sec>] [--sort name|left|latency] [--once] [<lockspace>]
sanlock explain [<code>...]
sanlock check [--seconds <sec>] [--io-timeout <sec>] [--sysroot <dir>] [--json] [<place>]
sanlock fsck [--lockspace <place>] [--repair] [--save <file>] [--no-wait] [--io-timeout <sec>] [--fire-timeout <sec>] [--json] <place> ...
sanlock exporter [--listen <addr>] [--textfile <file>] [--interval <sec>] [--timeout <sec>] [--once]
sanlock demo [--dir <dir>] [--quick] [--device <dev> --yes-overwrite]

LOCKSPACE = <lockspace_name>:<host_id>:<path>:<offset>
  <lockspace_name>      name of the lockspace
  <host_id>             number of this host in the lockspace
  <path>                path of the storage for leases; a colon in it is written \\:
  <offset>              offset on it, in bytes, or in MiB with the suffix M

RESOURCE = <lockspace_name>:<resource_name>:<path>:<offset>[:<path>:<offset>...][:<lver>|:SH]
  <lockspace_name>      name of the lockspace
  <resource_name>       name of the resource
  <path>, <offset>      as above; up to four disks
  <lver>                lease version to expect, or SH for a shared lease

RINDEX = <lockspace_name>:<path>:<offset>
  <lockspace_name>      name of the lockspace its resources belong to
  <path>, <offset>      where the resource index begins; its resources follow it

RENTRY = <resource_name>[:<offset>] or :<offset>
  <resource_name>       name of the resource
  <offset>              offset of the resource on the same path

Limits:
sector and align sizes that go together: 512/1M, 4K/1M, 4K/2M, 4K/4M, 4K/8M
largest host_id with them: 2000, 250, 500, 1000, 2000
longest name of a lockspace or resource: 48 bytes
longest path: 1023 bytes
most client connections: 1022; fewer where the limit of open files is low
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse};

    /// Every action that the text mentions is one that the parser knows and this version can carry out.
    #[test]
    fn every_action_mentioned_exists() {
        let mut actions = 0;
        for line in USAGE.lines() {
            let mut words = line.split_whitespace();
            if words.next() != Some("sanlock") {
                continue;
            }
            let (Some(kind @ ("client" | "direct")), Some(action)) = (words.next(), words.next()) else {
                continue;
            };
            let args = ["sanlock", kind, action].map(|word| word.as_bytes().to_vec());
            let command = parse(&args).expect(line).command;
            assert!(matches!(command, Command::Client(_) | Command::Direct(_)), "{line}");
            actions += 1;
        }
        assert_eq!(actions, 45);
    }

    #[test]
    fn what_is_not_here_is_not_mentioned() {
        for action in ["spawn", "init_host"] {
            assert!(!USAGE.contains(action), "{action}");
        }
    }
}
