'use strict';
/* Data blocks of the page: base64 of gzip becomes typed arrays and a document, without asking the network. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const ARRAYS = {
    uint8: Uint8Array,
    uint16: Uint16Array,
    uint32: Uint32Array,
    int8: Int8Array,
    int16: Int16Array,
    int32: Int32Array,
    float32: Float32Array,
    float64: Float64Array,
  };
  const ALIGNMENT = 8;

  function bytesOf(base64) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  /**
   * Read a data block.
   * @param {string} id of the script element
   * @returns {Promise<{document: any, columns: Object<string, ArrayLike<number>>}>}
   */
  foretrace.unpack = async (id) => {
    const element = document.getElementById(id);
    if (!element) throw new Error(`no data block "${id}" in this page`);
    const packed = bytesOf(element.textContent);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    const buffer = await new Response(stream).arrayBuffer();
    const columns = {};
    let offset = 0;
    for (const [name, [type, length]] of Object.entries(JSON.parse(element.dataset.columns))) {
      columns[name] = new ARRAYS[type](buffer, offset, length);
      offset += Math.ceil((length * ARRAYS[type].BYTES_PER_ELEMENT) / ALIGNMENT) * ALIGNMENT;
    }
    return { document: JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, offset))), columns };
  };

  /**
   * What `timeline_block` wrote, as options of `foretrace.Lanes`.
   * @param {{document: any, columns: any}} data as `unpack` gives it
   * @returns {object}
   */
  foretrace.timelineOptions = ({ document: { lanes, names, labels, kinds, bands, unit }, columns }) => ({
    lanes,
    names,
    labels,
    kinds,
    bands,
    unit,
    columns,
    arrows: { from: columns.arrow_from, to: columns.arrow_to },
  });
})();
