'use strict';
/* The dispatch chain: a tree laid out as lines, folded by level; keys as in any tree. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  /**
   * Make the tree fold.
   * @param {HTMLElement} tree a list whose items carry data-level, in reading order
   * @param {(at: number) => void} onPick asked for the events of the node at that place
   */
  foretrace.foldingTree = (tree, onPick) => {
    const items = [...tree.querySelectorAll('[role="treeitem"]')];
    const levels = items.map((item) => Number(item.dataset.level));
    const isOpen = (i) => items[i].getAttribute('aria-expanded') === 'true';

    function refresh() {
      let closed = Infinity; // the level below which nothing shows
      items.forEach((item, i) => {
        if (levels[i] <= closed) closed = Infinity;
        item.hidden = levels[i] > closed;
        if (!item.hidden && item.hasAttribute('aria-expanded') && !isOpen(i)) closed = levels[i];
      });
    }
    function set(i, open) {
      if (items[i].hasAttribute('aria-expanded')) items[i].setAttribute('aria-expanded', String(open));
      refresh();
    }
    function focus(i) {
      if (i < 0 || i >= items.length) return;
      items.forEach((item) => (item.tabIndex = -1));
      items[i].tabIndex = 0;
      items[i].focus();
    }
    const parentOf = (i) => {
      let at = i - 1;
      while (at >= 0 && levels[at] >= levels[i]) at--;
      return at;
    };
    const next = (i, way) => {
      let at = i + way;
      while (at >= 0 && at < items.length && items[at].hidden) at += way;
      return at;
    };

    tree.addEventListener('click', (event) => {
      const item = event.target.closest('[role="treeitem"]');
      if (!item) return;
      const i = items.indexOf(item);
      if (event.target.closest('a.node')) {
        event.preventDefault();
        onPick(i);
      } else set(i, !isOpen(i));
    });
    tree.addEventListener('keydown', (event) => {
      const i = items.indexOf(event.target);
      if (i < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      const moves = {
        ArrowDown: () => focus(next(i, 1)),
        ArrowUp: () => focus(next(i, -1)),
        ArrowRight: () => (items[i].getAttribute('aria-expanded') === 'false' ? set(i, true) : focus(next(i, 1))),
        ArrowLeft: () => (isOpen(i) ? set(i, false) : focus(parentOf(i))),
        Home: () => focus(0),
        End: () => focus(next(items.length, -1)),
        Enter: () => onPick(i),
      };
      if (!moves[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      moves[event.key]();
    });
    refresh();
    return {
      /** Open all nodes above a level, close those below. */
      unfold(most) {
        items.forEach((item, i) => item.hasAttribute('aria-expanded') && item.setAttribute('aria-expanded', String(levels[i] < most)));
        refresh();
      },
    };
  };
})();
