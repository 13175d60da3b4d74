// See the header. A path of any length must not push the reason out of the message.

#include "lib/base/files/fs_fail.h"

#include <errno.h>

static enum td_code code_of(int err) {
    switch (err) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return TD_RESOURCE_EXHAUSTED;
    case ENOENT:
        return TD_NOT_FOUND;
    case EEXIST:
        return TD_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
        return TD_PERMISSION_DENIED;
    case EIO:
        return TD_DATA_LOSS;
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EROFS:
    case ENOTEMPTY:
        return TD_FAILED_PRECONDITION;
    default:
        return TD_UNAVAILABLE;
    }
}

// The storage and not the path is at fault: it is full, it fails, or its server is away.
static bool is_storage(int err) {
    switch (err) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO:
    case EROFS:
    case ENODEV: // the device was taken out
    case ESTALE:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EREMOTEIO:
    case ENOTCONN: // of FUSE, when its server has ended
    case ESHUTDOWN:
        return true;
    default:
        return false;
    }
}

td_status td_fs_fail(const char *doing, const char *path) {
    int err = errno;
    td_status s = td_fail_errno(code_of(err), "%s '%.1024s'", doing, path);
    return is_storage(err) ? td_status_with_class(s, TD_CLASS_DISK) : s;
}

bool td_fs_is_gone(td_status borrow_status) {
    enum td_code code = td_status_code(borrow_status);
    return code == TD_NOT_FOUND || code == TD_PERMISSION_DENIED;
}
