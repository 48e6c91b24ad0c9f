'use strict';
/* From row to row, and rows into sight. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const AROUND = 3; // a row that is zoomed to fills a third of the view
  const LEAST = 50; // times the finest view, around a row without duration
  const ASIDE = 40; // pixels left beside a row that was scrolled to

  foretrace.LanesSteps = class LanesSteps {
    constructor(host) {
      this.host = host;
    }

    /** Zoom to a row; others around it say where one is. */
    zoomTo(row) {
      const { host } = this;
      const { model } = host;
      const span = Math.max(model.duration[row] * AROUND, host.axis.finest * LEAST);
      const middle = model.start[row] + model.duration[row] / 2;
      host.moveTo(middle - span / 2, middle + span / 2);
    }

    /** Move the view to a row that is outside of it or too small to see. */
    reveal(row) {
      const { host } = this;
      const { model, target } = host;
      const [start, end] = [model.start[row], model.end(row)];
      const middle = (start + end) / 2;
      let span = target.end - target.start;
      if (((end - start) / span) * host.width < 3) span = Math.min(span, Math.max(40 * (end - start), host.axis.finest * LEAST));
      else if (end >= target.start && start <= target.end) return;
      host.moveTo(middle - span / 2, middle + span / 2);
    }

    /** Scroll a row's track into sight. */
    scrollTo(row) {
      const { scroller, layout, height } = this.host;
      const spot = layout.spot(row);
      if (spot.top >= layout.dockTop) return;
      const room = height - layout.header - layout.dockHeight;
      if (spot.top < scroller.scrollTop + 4) scroller.scrollTop = Math.max(0, spot.top - ASIDE);
      else if (spot.top + spot.height > scroller.scrollTop + room - 4) {
        scroller.scrollTop = spot.top + spot.height - room + ASIDE;
      }
    }

    /** Select the row before (-1) or after (1) in the same track. */
    row(way) {
      const { host } = this;
      this._choose(host.selected < 0 ? this._any() : host.model.neighbour(host.selected, way));
    }

    /** Select what lies above (-1) or below (1) at the same time. */
    track(way) {
      const { model, layout, selected, target } = this.host;
      if (selected < 0) {
        this._choose(this._any());
        return;
      }
      const middle = model.start[selected] + model.duration[selected] / 2;
      const from = model.firstTrack[model.lane[selected]] + model.depth[selected];
      for (let track = from + way; track >= 0 && track < layout.trackTop.length; track += way) {
        if (Number.isNaN(layout.trackTop[track])) continue;
        const row = model.rowAt(track, middle, (target.end - target.start) / 2);
        if (row >= 0) {
          this._choose(row);
          return;
        }
      }
    }

    _choose(row) {
      if (row >= 0) this.host.choose(row, { reveal: true });
    }

    /** A row in the middle of the view, where none is selected. */
    _any() {
      const { model, layout, target } = this.host;
      for (let track = 0; track < layout.trackTop.length; track++) {
        if (Number.isNaN(layout.trackTop[track])) continue;
        const row = model.rowAt(track, this.host.middle(), (target.end - target.start) / 2);
        if (row >= 0) return row;
      }
      return -1;
    }
  };
})();
