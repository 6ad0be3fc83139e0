//! The dashboard: one page, its style and its script, all in the binary. The page holds no data; it asks the API, with the
//! operator's token, and shows what comes only as text.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Desk;

/// Nothing from elsewhere, nothing inline, nothing that frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const ASSETS: [(&str, &str, &str); 7] = [
    ("/assets/style.css", "text/css; charset=utf-8", include_str!("dashboard/style.css")),
    ("/assets/main.js", SCRIPT, include_str!("dashboard/main.js")),
    ("/assets/dom.js", SCRIPT, include_str!("dashboard/dom.js")),
    ("/assets/api.js", SCRIPT, include_str!("dashboard/api.js")),
    ("/assets/workflows.js", SCRIPT, include_str!("dashboard/workflows.js")),
    ("/assets/events.js", SCRIPT, include_str!("dashboard/events.js")),
    ("/assets/letters.js", SCRIPT, include_str!("dashboard/letters.js")),
];

pub fn routes() -> Router<Desk> {
    let asset = |kind: &'static str, text: &'static str| get(move || async move { served(kind, text) });
    let mut routes = Router::new().route("/", asset("text/html; charset=utf-8", include_str!("dashboard/index.html")));
    for (path, kind, text) in ASSETS {
        routes = routes.route(path, asset(kind, text));
    }
    routes
}

fn served(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}
