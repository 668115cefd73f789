//! The page and the two files that belong to it, which the program carries. Style and script are files of their own, so that the
//! policy of the page names no hash that an edit would have to follow. The paths are relative: the page works below a prefix, too.

use axum::response::Response;

use super::answer::text;

/// The file at this path, if it is one of the page.
pub(super) fn of(path: &str) -> Option<Response> {
    Some(match path {
        "/" => text("text/html; charset=utf-8", include_str!("page/admin.html")),
        "/admin.css" => text("text/css; charset=utf-8", include_str!("page/admin.css")),
        "/admin.js" => text(
            "text/javascript; charset=utf-8",
            include_str!("page/admin.js"),
        ),
        _ => return None,
    })
}
