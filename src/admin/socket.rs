//! The socket's file: where it is, who may open it, and what to do about one that was left behind.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// In the data directory.
pub const FILE_NAME: &str = "admin.sock";
/// Only the user that the node runs as, and root.
const MODE: u32 = 0o600;
/// A socket's path may have so many bytes: `sun_path` without its last zero.
const PATH_BYTES_MAX: usize = 107;
const BACKLOG: i32 = 16;

/// The socket's address; a directory with a long path is named by a file descriptor, which is to stay open while the address is used.
struct Address {
    path: PathBuf,
    _directory: Option<File>,
}

impl Address {
    fn within(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE_NAME);
        if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, _directory: None });
        }
        let open = File::open(directory)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())).join(FILE_NAME);
        Ok(Self { path, _directory: Some(open) })
    }
}

/// Binds the socket. One that nobody answers at was left behind by a process that was killed, and is replaced; `AddrInUse` where somebody
/// does.
pub fn bind(directory: &Path) -> io::Result<UnixListener> {
    let address = Address::within(directory)?;
    match UnixStream::connect(&address.path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => fs::remove_file(&address.path)?,
    }
    // The mode is set before the file is there: nobody can be faster.
    let socket = File::from(OwnedFd::from(Socket::new(Domain::UNIX, Type::STREAM, None)?));
    socket.set_permissions(Permissions::from_mode(MODE))?;
    let socket = Socket::from(OwnedFd::from(socket));
    socket.bind(&SockAddr::unix(&address.path)?)?;
    // Where the first does nothing, this does it.
    fs::set_permissions(&address.path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

pub fn connect(directory: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(Address::within(directory)?.path)
}

/// Removes the file of a socket that is closed.
pub fn remove(directory: &Path) {
    let _ = fs::remove_file(directory.join(FILE_NAME));
}
