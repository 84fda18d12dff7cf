//! The tables of names and texts.

/// The symbol of a negative result: `SANLK_*` or an errno name. `None` for 0, positive numbers and numbers without one,
/// and for -1, which is far more often the daemon's "failed" than EPERM.
///
/// ```
/// assert_eq!(sanlock_wire::code::name(-243), Some("SANLK_ACQUIRE_IDLIVE"));
/// assert_eq!(sanlock_wire::code::name(-16), Some("EBUSY"));
/// assert_eq!(sanlock_wire::code::name(0), None);
/// ```
#[must_use]
pub fn name(code: i32) -> Option<&'static str> {
    match code {
        -199..=-2 => ERRNO.iter().find(|(number, _)| *number == -code).map(|(_, name)| *name),
        _ => SANLK.iter().find(|(number, _, _)| *number == code).map(|(_, name, _)| *name),
    }
}

/// The text of `sanlock_strerror`: exactly that of the C library, `Unknown error` for everything that it does not list,
/// errno values and 0 included (11.7).
#[must_use]
pub fn strerror(code: i32) -> &'static str {
    SANLK
        .iter()
        .find(|(number, _, _)| *number == code)
        .and_then(|(_, _, text)| *text)
        .unwrap_or("Unknown error")
}

/// The number that 3.8.5 gives the same result, where a later release renumbered it; every other number as it is.
pub(super) fn canonical(code: i32) -> i32 {
    match code {
        -252 => -250,
        -253 => -251,
        other => other,
    }
}

/// Number, name, and the library's text where it has one.
const SANLK: &[(i32, &str, Option<&str>)] = &[
    (-201, "SANLK_ERROR", Some("General error")),
    (-202, "SANLK_AIO_TIMEOUT", Some("IO timeout")),
    (-203, "SANLK_WD_ERROR", Some("Watchdog device error")),
    (-204, "SANLK_VERSION_INCOMPAT", None),
    (-210, "SANLK_DBLOCK_READ", Some("Lease read error in dblock")),
    (-211, "SANLK_DBLOCK_WRITE", Some("Lease write error in dblock")),
    (-212, "SANLK_DBLOCK_LVER", Some("Lease was acquired by another host in new ballot")),
    (-213, "SANLK_DBLOCK_MBAL", Some("Lease was acquired by another host in current ballot")),
    (-214, "SANLK_DBLOCK_CHECKSUM", Some("Lease checksum error in dblock")),
    (-220, "SANLK_LEADER_READ", Some("Lease read error in leader")),
    (-221, "SANLK_LEADER_WRITE", Some("Lease write error in leader")),
    (-222, "SANLK_LEADER_DIFF", Some("Lease read inconsistent")),
    (-223, "SANLK_LEADER_MAGIC", Some("Lease does not exist on storage")),
    (-224, "SANLK_LEADER_VERSION", Some("Lease format version on storage is not recognized")),
    (-225, "SANLK_LEADER_SECTORSIZE", Some("Lease sector size is inconsistent")),
    (-226, "SANLK_LEADER_LOCKSPACE", Some("Lease lockspace name is incorrect")),
    (-227, "SANLK_LEADER_RESOURCE", Some("Lease resource name is incorrect")),
    (-228, "SANLK_LEADER_NUMHOSTS", Some("Lease num_hosts is incorrect")),
    (-229, "SANLK_LEADER_CHECKSUM", Some("Lease checksum error in leader")),
    (-230, "SANLK_ADDLS_SIZES", None),
    (-231, "SANLK_ADDLS_INVALID_HOSTID", None),
    (-240, "SANLK_ACQUIRE_LVER", None),
    (-241, "SANLK_ACQUIRE_LOCKSPACE", Some("Lease lockspace is not found")),
    (-242, "SANLK_ACQUIRE_IDDISK", Some("Lease lockspace disk cannot be opened")),
    (-243, "SANLK_ACQUIRE_IDLIVE", Some("Lease is held by another host")),
    (-244, "SANLK_ACQUIRE_OWNED", Some("Lease was acquired by another host in other ballot")),
    (-245, "SANLK_ACQUIRE_OTHER", Some("Lease was acquired by another host in local commit")),
    (-246, "SANLK_ACQUIRE_SHRETRY", Some("Lease is held by another host for shared acquire")),
    (-247, "SANLK_ACQUIRE_OWNED_RETRY", Some("Lease is owned by another host")),
    (-248, "SANLK_ACQUIRE_OWNER_GEN_REVERTED", None),
    (-249, "SANLK_ACQUIRE_OWNED_NO_TIMEOUT", None),
    (-250, "SANLK_RELEASE_LVER", Some("Lease release version is incorrect")),
    (-251, "SANLK_RELEASE_OWNER", Some("Lease release owner is incorrect")),
    (-260, "SANLK_RENEW_OWNER", Some("Lease renew owner is incorrect")),
    (-261, "SANLK_RENEW_DIFF", Some("Lease renew data has changed")),
    (-262, "SANLK_HOSTID_BUSY", Some("Lease host ID is being used by another host")),
    (-263, "SANLK_RENEW_DEAD_EXT", None),
    (-270, "SANLK_REQUEST_MAGIC", Some("Lease request block has invalid data")),
    (-271, "SANLK_REQUEST_VERSION", Some("Lease request block has invalid version")),
    (-272, "SANLK_REQUEST_OLD", Some("Lease request has newer lease version")),
    (-273, "SANLK_REQUEST_LVER", Some("Lease request block has newer version")),
    (-274, "SANLK_RINDEX_MAGIC", None),
    (-275, "SANLK_RINDEX_VERSION", None),
    (-276, "SANLK_RINDEX_LOCKSPACE", None),
    (-277, "SANLK_RINDEX_OFFSET", None),
    (-278, "SANLK_RINDEX_DIFF", None),
    (-280, "SANLK_WRONG_GENERATION", None),
    (-281, "SANLK_WRONG_CAW", None),
    (-282, "SANLK_CAW_CONFIG", None),
    (-283, "SANLK_CAW_OPEN", None),
    (-284, "SANLK_CAW_IOCTL", None),
    (-285, "SANLK_CAW_MISCOMPARE", None),
    (-286, "SANLK_CAW_ERROR", None),
    (-287, "SANLK_IOTYPE", None),
    (-288, "SANLK_CAW_ILLEGAL", None),
    (-252, "SANLK_RELEASE_LVER", None),
    (-253, "SANLK_RELEASE_OWNER", None),
];

/// Linux errno numbers (positive) and names.
#[rustfmt::skip]
const ERRNO: &[(i32, &str)] = &[
    (1, "EPERM"), (2, "ENOENT"), (3, "ESRCH"), (4, "EINTR"), (5, "EIO"), (6, "ENXIO"), (7, "E2BIG"),
    (8, "ENOEXEC"), (9, "EBADF"), (10, "ECHILD"), (11, "EAGAIN"), (12, "ENOMEM"), (13, "EACCES"),
    (14, "EFAULT"), (15, "ENOTBLK"), (16, "EBUSY"), (17, "EEXIST"), (18, "EXDEV"), (19, "ENODEV"),
    (20, "ENOTDIR"), (21, "EISDIR"), (22, "EINVAL"), (23, "ENFILE"), (24, "EMFILE"), (25, "ENOTTY"),
    (26, "ETXTBSY"), (27, "EFBIG"), (28, "ENOSPC"), (29, "ESPIPE"), (30, "EROFS"), (31, "EMLINK"),
    (32, "EPIPE"), (33, "EDOM"), (34, "ERANGE"), (35, "EDEADLK"), (36, "ENAMETOOLONG"), (37, "ENOLCK"),
    (38, "ENOSYS"), (39, "ENOTEMPTY"), (40, "ELOOP"), (42, "ENOMSG"), (43, "EIDRM"), (44, "ECHRNG"),
    (45, "EL2NSYNC"), (46, "EL3HLT"), (47, "EL3RST"), (48, "ELNRNG"), (49, "EUNATCH"), (50, "ENOCSI"),
    (51, "EL2HLT"), (52, "EBADE"), (53, "EBADR"), (54, "EXFULL"), (55, "ENOANO"), (56, "EBADRQC"),
    (57, "EBADSLT"), (59, "EBFONT"), (60, "ENOSTR"), (61, "ENODATA"), (62, "ETIME"), (63, "ENOSR"),
    (64, "ENONET"), (65, "ENOPKG"), (66, "EREMOTE"), (67, "ENOLINK"), (68, "EADV"), (69, "ESRMNT"),
    (70, "ECOMM"), (71, "EPROTO"), (72, "EMULTIHOP"), (73, "EDOTDOT"), (74, "EBADMSG"), (75, "EOVERFLOW"),
    (76, "ENOTUNIQ"), (77, "EBADFD"), (78, "EREMCHG"), (79, "ELIBACC"), (80, "ELIBBAD"), (81, "ELIBSCN"),
    (82, "ELIBMAX"), (83, "ELIBEXEC"), (84, "EILSEQ"), (85, "ERESTART"), (86, "ESTRPIPE"), (87, "EUSERS"),
    (88, "ENOTSOCK"), (89, "EDESTADDRREQ"), (90, "EMSGSIZE"), (91, "EPROTOTYPE"), (92, "ENOPROTOOPT"),
    (93, "EPROTONOSUPPORT"), (94, "ESOCKTNOSUPPORT"), (95, "EOPNOTSUPP"), (96, "EPFNOSUPPORT"),
    (97, "EAFNOSUPPORT"), (98, "EADDRINUSE"), (99, "EADDRNOTAVAIL"), (100, "ENETDOWN"),
    (101, "ENETUNREACH"), (102, "ENETRESET"), (103, "ECONNABORTED"), (104, "ECONNRESET"), (105, "ENOBUFS"),
    (106, "EISCONN"), (107, "ENOTCONN"), (108, "ESHUTDOWN"), (109, "ETOOMANYREFS"), (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"), (112, "EHOSTDOWN"), (113, "EHOSTUNREACH"), (114, "EALREADY"),
    (115, "EINPROGRESS"), (116, "ESTALE"), (117, "EUCLEAN"), (118, "ENOTNAM"), (119, "ENAVAIL"),
    (120, "EISNAM"), (121, "EREMOTEIO"), (122, "EDQUOT"), (123, "ENOMEDIUM"), (124, "EMEDIUMTYPE"),
    (125, "ECANCELED"), (126, "ENOKEY"), (127, "EKEYEXPIRED"), (128, "EKEYREVOKED"), (129, "EKEYREJECTED"),
    (130, "EOWNERDEAD"), (131, "ENOTRECOVERABLE"), (132, "ERFKILL"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;

    #[test]
    fn tables_have_each_number_once() {
        for (index, (number, name, _)) in SANLK.iter().enumerate() {
            assert!((-299..=-201).contains(number), "{name}");
            assert!(SANLK.iter().skip(index + 1).all(|(other, _, _)| other != number), "{number}");
        }
        for window in ERRNO.windows(2) {
            assert!(window[0].0 < window[1].0, "{window:?}");
        }
    }

    #[test]
    fn texts_are_those_of_the_library() {
        assert_eq!(strerror(code::SANLK_ACQUIRE_IDLIVE), "Lease is held by another host");
        assert_eq!(strerror(-201), "General error");
        assert_eq!(strerror(-250), "Lease release version is incorrect");
        for unknown in [0, 1, -2, -22, -230, -231, -240, -274, -278, -300, i32::MIN, i32::MAX] {
            assert_eq!(strerror(unknown), "Unknown error", "{unknown}");
        }
        assert_eq!(SANLK.iter().filter(|(_, _, text)| text.is_some()).count(), 34);
    }

    #[test]
    fn names() {
        assert_eq!(name(-11), Some("EAGAIN"));
        assert_eq!(name(-95), Some("EOPNOTSUPP"));
        assert_eq!(name(-117), Some("EUCLEAN"));
        assert_eq!(name(-223), Some("SANLK_LEADER_MAGIC"));
        for none in [0, 1, -1, 11, -199, -200, -299, i32::MIN] {
            assert_eq!(name(none), None, "{none}");
        }
    }
}
