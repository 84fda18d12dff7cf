//! Command numbers and their names (socket-protocol.md 6, 12.1; command-line.md 10.3).

macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $debug:expr;)*) => {
        /// A command of the protocol, 1 to 44.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Command { $($(#[$doc])* $variant = $number,)* }

        impl Command {
            /// Every command, in ascending order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The command with this number, `None` for 0 and everything above 44.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// The name used in the specification, for example `ADD_LOCKSPACE`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The name that the `debug_cmd` setting uses, for example `add_lockspace` (command-line.md 10.3).
            /// INIT_LOCKSPACE_HOST has none.
            #[must_use]
            pub const fn debug_name(self) -> Option<&'static str> {
                match self { $(Self::$variant => $debug,)* }
            }
        }
    };
}

commands! {
    /// Ties the connection to the process that called `connect`. No reply.
    Register = 1, "REGISTER", Some("register");
    /// Joins a lockspace.
    AddLockspace = 2, "ADD_LOCKSPACE", Some("add_lockspace");
    /// Leaves a lockspace; its users are killed.
    RemLockspace = 3, "REM_LOCKSPACE", Some("rem_lockspace");
    /// Ends the daemon. No reply.
    Shutdown = 4, "SHUTDOWN", Some("shutdown");
    /// State records of the daemon, its clients, lockspaces and resources.
    Status = 5, "STATUS", Some("status");
    /// The log text kept in memory.
    LogDump = 6, "LOG_DUMP", Some("log_dump");
    /// Acquires leases for a registered process.
    Acquire = 7, "ACQUIRE", Some("acquire");
    /// Releases leases of a registered process.
    Release = 8, "RELEASE", Some("release");
    /// Lists the leases of a registered process.
    Inquire = 9, "INQUIRE", Some("inquire");
    /// Sets what may be done to, and accepted from, this connection.
    Restrict = 10, "RESTRICT", Some("restrict");
    /// Asks the holder of a lease to give it up.
    Request = 11, "REQUEST", Some("request");
    /// Reports the align size of a path.
    Align = 12, "ALIGN", Some("align");
    /// Looks for requests on all held leases of a lockspace.
    ExamineLockspace = 13, "EXAMINE_LOCKSPACE", Some("examine_lockspace");
    /// Looks for a request on one held lease.
    ExamineResource = 14, "EXAMINE_RESOURCE", Some("examine_resource");
    /// State records of the hosts of a lockspace.
    HostStatus = 15, "HOST_STATUS", Some("host_status");
    /// Asks whether a lockspace is joined.
    InqLockspace = 16, "INQ_LOCKSPACE", Some("inq_lockspace");
    /// Sets the program to run instead of a signal.
    Killpath = 17, "KILLPATH", Some("killpath");
    /// Formats a lockspace.
    WriteLockspace = 18, "WRITE_LOCKSPACE", Some("write_lockspace");
    /// Formats a resource.
    WriteResource = 19, "WRITE_RESOURCE", Some("write_resource");
    /// Reads a lockspace's record.
    ReadLockspace = 20, "READ_LOCKSPACE", Some("read_lockspace");
    /// Reads a resource's leader.
    ReadResource = 21, "READ_RESOURCE", Some("read_resource");
    /// Lists lockspaces.
    GetLockspaces = 22, "GET_LOCKSPACES", Some("get_lockspaces");
    /// Lists hosts of a lockspace.
    GetHosts = 23, "GET_HOSTS", Some("get_hosts");
    /// Reads a resource and its owners.
    ReadResourceOwners = 24, "READ_RESOURCE_OWNERS", Some("read_resource_owners");
    /// Sets the lock value block of a held lease.
    SetLvb = 25, "SET_LVB", Some("set_lvb");
    /// Reads the lock value block of a held lease.
    GetLvb = 26, "GET_LVB", Some("get_lvb");
    /// Changes the mode of a held lease.
    Convert = 27, "CONVERT", Some("convert");
    /// Asks for the daemon's version.
    Version = 28, "VERSION", Some("version");
    /// Ends the daemon and answers when it ended.
    ShutdownWait = 29, "SHUTDOWN_WAIT", Some("shutdown_wait");
    /// Turns the connection into an event stream.
    RegEvent = 30, "REG_EVENT", Some("reg_event");
    /// Cleans up event streams.
    EndEvent = 31, "END_EVENT", Some("end_event");
    /// Sends an event to another host.
    SetEvent = 32, "SET_EVENT", Some("set_event");
    /// Sets the "used" marks of a lockspace.
    SetConfig = 33, "SET_CONFIG", Some("set_config");
    /// State records of past renewals.
    Renewal = 34, "RENEWAL", Some("renewal");
    /// Formats a resource index.
    FormatRindex = 35, "FORMAT_RINDEX", Some("format_rindex");
    /// Changes an entry of a resource index.
    UpdateRindex = 36, "UPDATE_RINDEX", Some("update_rindex");
    /// Looks an entry up in a resource index.
    LookupRindex = 37, "LOOKUP_RINDEX", Some("lookup_rindex");
    /// Formats a resource in a free slot of an index.
    CreateResource = 38, "CREATE_RESOURCE", Some("create_resource");
    /// Clears a resource and its index entry.
    DeleteResource = 39, "DELETE_RESOURCE", Some("delete_resource");
    /// Rebuilds a resource index from the leases.
    RebuildRindex = 40, "REBUILD_RINDEX", Some("rebuild_rindex");
    /// ACQUIRE that names the owner when refused (since 5).
    Acquire2 = 41, "ACQUIRE2", Some("acquire2");
    /// Reads a lockspace record and its owner (since 5).
    ReadLockspaceHost = 42, "READ_LOCKSPACE_HOST", Some("read_lockspace_host");
    /// Writes one lockspace record (since 5).
    InitLockspaceHost = 43, "INIT_LOCKSPACE_HOST", None;
    /// Marks another host's record (since 5).
    SetHost = 44, "SET_HOST", Some("set_host");
}

impl Command {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The command that the `debug_cmd` setting calls by this name.
    #[must_use]
    pub fn from_debug_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.debug_name() == Some(name))
    }

    /// Whether `data2` of the request chooses a target process (2.6): ACQUIRE, RELEASE, INQUIRE, CONVERT, KILLPATH.
    #[must_use]
    pub const fn is_targeted(self) -> bool {
        matches!(self, Self::Acquire | Self::Release | Self::Inquire | Self::Convert | Self::Killpath)
    }

    /// Whether the daemon closes a plain connection after the reply (2.3). REG_EVENT is not in this list: its
    /// connection becomes a stream on success and is closed on failure (9).
    #[must_use]
    pub const fn closes_plain_connection(self) -> bool {
        matches!(
            self,
            Self::Shutdown
                | Self::Status
                | Self::LogDump
                | Self::HostStatus
                | Self::Renewal
                | Self::GetLockspaces
                | Self::GetHosts
                | Self::EndEvent
                | Self::SetConfig
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_1_to_44_without_gap() {
        let numbers: Vec<u32> = Command::ALL.iter().map(|c| c.number()).collect();
        assert_eq!(numbers, (1..=44).collect::<Vec<_>>());
        for command in Command::ALL {
            assert_eq!(Command::from_number(command.number()), Some(*command));
        }
        assert_eq!(Command::from_number(0), None);
        assert_eq!(Command::from_number(45), None);
    }

    #[test]
    fn debug_names_map_back() {
        for command in Command::ALL {
            if let Some(name) = command.debug_name() {
                assert_eq!(Command::from_debug_name(name), Some(*command));
                assert_eq!(name.to_uppercase(), command.name());
            }
        }
        assert_eq!(Command::from_debug_name("all"), None);
        assert_eq!(Command::InitLockspaceHost.debug_name(), None);
    }
}
