// Keeps a page up to date by the server-sent events of its own address. Without this
// file everything works but that.
"use strict";
(() => {
	const root = document.documentElement;

	// session asks whether there is one, and calls what is to be done then.
	function session(yes, no) {
		fetch("/session").then((answer) => answer.json()).then((answer) => (answer.session ? yes() : no()), () => {});
	}

	// A link from elsewhere brings no session along; a request from here does.
	const again = document.querySelector("[data-again]");
	if (again) session(() => location.replace(again.dataset.again), () => {});
	if (!("live" in document.body.dataset)) return;

	const main = document.getElementById("main");
	const head = document.getElementById("head");
	const said = document.getElementById("said");
	const silence = 20000; // ms without a sign of life until the stream counts as lost
	let source = null;
	let timer = 0;
	let doubt = false; // the stream has broken off, and is not lost yet
	let waiting = null; // news that would disturb a selection
	let headline = document.getElementById("headline").textContent;

	// name finds an element again after it was replaced.
	function name(element) {
		if (element.id) return "#" + CSS.escape(element.id);
		const href = element.getAttribute("href");
		return href ? `a[href="${CSS.escape(href)}"]` : null;
	}

	function selecting() {
		const selection = getSelection();
		return !selection.isCollapsed && main.contains(selection.anchorNode);
	}

	// typing is something that a new page would lose.
	function typing() {
		const active = document.activeElement;
		return main.contains(active) && active.matches("input, textarea, select");
	}

	// morph makes an element like another one and keeps what is the same, so that a
	// click, the focus and a reader's place survive. What has a data-key is the same
	// where the key is, and a link where its address is.
	function morph(old, now) {
		if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName ||
			old.nodeName === "A" && old.getAttribute("href") !== now.getAttribute("href")) {
			old.replaceWith(now);
			return;
		}
		if (old.nodeType !== Node.ELEMENT_NODE) {
			if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
			return;
		}
		for (const { name, value } of now.attributes) {
			if (old.getAttribute(name) !== value) old.setAttribute(name, value);
		}
		for (const { name } of [...old.attributes]) {
			if (!now.hasAttribute(name)) old.removeAttribute(name);
		}
		morphChildren(old, now);
	}

	const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE && node.getAttribute("data-key")) || "";

	function morphChildren(old, now) {
		const keyed = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
		let at = old.firstChild;
		for (const child of [...now.childNodes]) {
			const key = keyOf(child);
			const same = key ? keyed.get(key) : at && !keyOf(at) ? at : null;
			if (!same) {
				old.insertBefore(child, at);
				continue;
			}
			if (same === at) at = at.nextSibling;
			else old.insertBefore(same, at);
			morph(same, child);
		}
		while (at) {
			const next = at.nextSibling;
			at.remove();
			at = next;
		}
	}

	// put brings a part of the page up to date, and keeps the focus where it is.
	function put(target, html) {
		const active = document.activeElement;
		const found = target !== active && target.contains(active) ? name(active) : null;
		const next = target.cloneNode(false);
		next.innerHTML = html;
		morphChildren(target, next);
		if (!found || document.activeElement === active) return;
		(target.querySelector(found) || main).focus({ preventScroll: true });
	}

	function show(html) {
		if (selecting() || typing()) {
			waiting = html;
			return;
		}
		waiting = null;
		put(main, html);
	}

	// within counts the stream as lost if there is no sign of life in time.
	function within(time) {
		clearTimeout(timer);
		timer = setTimeout(lost, time);
	}

	function alive() {
		doubt = false;
		root.dataset.stream = "on";
		within(silence);
	}

	function lost() {
		root.dataset.stream = "off";
		close();
		session(() => {}, () => location.reload()); // to the login page, and back
		timer = setTimeout(open, 5000);
	}

	function close() {
		doubt = false;
		clearTimeout(timer);
		if (source) source.close();
		source = null;
	}

	function open() {
		close();
		if (document.hidden) return;
		source = new EventSource(location.href);
		within(silence);
		source.addEventListener("head", (event) => {
			alive();
			put(head, event.data);
			const now = document.getElementById("headline").textContent;
			if (now !== headline) said.textContent = now;
			headline = now;
		});
		source.addEventListener("main", (event) => {
			alive();
			show(event.data);
		});
		source.addEventListener("error", () => {
			if (source && source.readyState === EventSource.CLOSED) lost();
			else if (!doubt) within(5000); // it tries again by itself, and fails each time
			doubt = true;
		});
	}

	document.addEventListener("selectionchange", () => {
		if (waiting !== null && !selecting()) show(waiting);
	});
	// A browser has few connections to a server: pages that nobody sees need none.
	document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
	addEventListener("pagehide", close);
	addEventListener("pageshow", (event) => event.persisted && open());
	open();
})();
