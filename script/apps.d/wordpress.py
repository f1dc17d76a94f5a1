"""WordPress on MariaDB, as its installer leaves it, with its default theme."""

import html
import json
import re
import shutil

import pymysql

from app import HOST, PASSWORD, App, php

POSTS = 60
CONFIG = f"""<?php
define('DB_NAME', 'app');
define('DB_USER', 'app');
define('DB_PASSWORD', 'app');
define('DB_HOST', '127.0.0.1:' . getenv('APP_DB_PORT'));
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
define('WP_HOME', 'http://{HOST}');
define('WP_SITEURL', 'http://{HOST}');
define('AUTH_KEY', 'one'); define('SECURE_AUTH_KEY', 'two'); define('LOGGED_IN_KEY', 'three'); define('NONCE_KEY', 'four');
define('AUTH_SALT', 'five'); define('SECURE_AUTH_SALT', 'six'); define('LOGGED_IN_SALT', 'seven'); define('NONCE_SALT', 'eight');
// Nothing is asked of other machines, and nothing runs beside the pages.
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISABLE_WP_CRON', true);
define('WP_AUTO_UPDATE_CORE', false);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
"""
SEED = r"""<?php
define('WP_INSTALLING', true);
$_SERVER += ['HTTP_HOST' => 'app.test', 'REQUEST_URI' => '/', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_METHOD' => 'GET'];
require __DIR__ . '/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';
[, $password, $posts] = $argv;
wp_install('Blog', 'admin', 'admin@app.test', true, '', $password);
foreach (['News', 'Lakes', 'Rivers'] as $name) $categories[] = wp_insert_term($name, 'category')['term_id'];
for ($n = 1; $n <= $posts; $n++) {
    $text = "<!-- wp:paragraph --><p>" . str_repeat("Water runs into lake $n and out of it. ", 12) . "</p><!-- /wp:paragraph -->";
    $id = wp_insert_post([
        'post_title' => "Lake $n", 'post_content' => $text, 'post_status' => 'publish', 'post_author' => 1,
        'post_category' => [$categories[$n % 3]], 'tags_input' => ["tag" . $n % 7, "tag" . $n % 5],
        'post_date' => gmdate('Y-m-d H:i:s', time() - 86400 * ($posts - $n + 1)),
    ], true);
    if (is_wp_error($id)) { fwrite(STDERR, $id->get_error_message()); exit(1); }
    for ($c = 0; $c < $n % 4; $c++) wp_insert_comment([
        'comment_post_ID' => $id, 'comment_author' => "Reader $c", 'comment_author_email' => "reader$c@app.test",
        'comment_content' => "Comment $c on lake $n", 'comment_approved' => 1,
    ]);
    $ids[] = $id;
}
for ($n = 1; $n <= 3; $n++) $pages[] = wp_insert_post([
    'post_title' => "Page $n", 'post_content' => "About $n", 'post_status' => 'publish', 'post_type' => 'page', 'post_author' => 1]);
echo json_encode(['posts' => $ids, 'pages' => $pages, 'categories' => $categories]);
"""


class WordPress(App):
    name = "WordPress"
    family = "mysql"
    login_statements = (
        "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_unicode_520_ci'",
        "SELECT @@SESSION.sql_mode",
        "SET SESSION sql_mode='NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
    )
    first_read = "SELECT option_name, option_value FROM wp_options WHERE autoload = 'yes'"

    def install(self):
        shutil.copytree(self.packages / "usr/share/wordpress", self.folder, symlinks=True)
        (self.folder / ".htaccess").unlink(missing_ok=True)
        # Debian links what other packages have; here nothing but pages is asked for.
        for name in ("getid3.lib.php", "getid3.php"):
            (self.folder / "wp-includes/ID3" / name).unlink(missing_ok=True)
        (self.folder / "wp-config.php").write_text(CONFIG)
        (self.folder / "seed.php").write_text(SEED)
        found = self.run(*php("seed.php", PASSWORD, str(POSTS)))
        (self.folder / "seed.php").unlink()
        made = json.loads(found[found.rindex('{"posts"'):])
        self.posts = made["posts"]
        self.pages = (
            ("anonymous", "/"), ("anonymous", "/?paged=2"), ("anonymous", "/?paged=3"),
            *(("anonymous", f"/?p={post}") for post in self.posts[-12:]),
            *(("anonymous", f"/?page_id={page}") for page in made["pages"]),
            *(("anonymous", f"/?cat={category}") for category in made["categories"]),
            ("anonymous", "/?tag=tag3"), ("anonymous", "/?author=1"), ("anonymous", "/?s=lake"), ("anonymous", "/?feed=rss2"),
            ("anonymous", "/index.php?rest_route=/wp/v2/posts"),
            ("member", "/"), *(("member", f"/?p={post}") for post in self.posts[-6:]),
            ("member", "/wp-admin/edit.php"), ("member", "/wp-admin/edit-comments.php"), ("member", "/wp-admin/profile.php"),
            ("member", "/wp-admin/options-general.php"),
        )

    def serve(self, port):
        return php("-S", f"127.0.0.1:{port}", "-t", str(self.folder))

    def connect(self, port):
        account = {"user": "app", "password": "app", "database": "app"}
        return pymysql.connect(host="127.0.0.1", port=port, charset="utf8mb4", autocommit=True, **account)

    def login(self, client, port):
        client.get(port, "/wp-login.php")
        form = {"log": "admin", "pwd": PASSWORD, "wp-submit": "Log In", "redirect_to": f"http://{HOST}/wp-admin/profile.php", "testcookie": "1"}
        if "Profile" not in client.post(port, "/wp-login.php", form).text:
            raise RuntimeError("WordPress: not logged in")

    def write(self, client, port, number):
        """A comment on a post, or the post itself edited; the pages that show it."""
        post = self.posts[-1 - number % 10]
        mark = f"Edit number {number} of it"
        if number % 2 == 0:
            form = {"comment": mark, "comment_post_ID": post, "comment_parent": 0}
            client.post(port, "/wp-comments-post.php", form)
        else:
            nonce = client.get(port, "/wp-admin/admin-ajax.php?action=rest-nonce").text
            client.post(port, f"/index.php?rest_route=/wp/v2/posts/{post}&_wpnonce={nonce}", {"title": mark})
        return mark, [f"/?p={post}", "/", "/?feed=rss2", "/index.php?rest_route=/wp/v2/comments"]

    def normalise(self, text):
        text = re.sub(r'(nonce"?[=:]"?|_wpnonce=|name="_\w*nonce\w*" value=")\w+', "", text)
        text = re.sub(r'"[0-9a-f]{10}"|value="[0-9a-f]{10}"|=[0-9a-f]{10}\b', "", text)
        # A new password is proposed each time; addresses are written in characters that are chosen at random.
        text = re.sub(r'data-pw="[^"]*"', "", html.unescape(text))
        text = re.sub(r"<lastBuildDate>.*?</lastBuildDate>", "", text)
        return re.sub(r"\b\d+ (seconds?|mins?|minutes?) ago|\d\d:\d\d:\d\d", "", text)
