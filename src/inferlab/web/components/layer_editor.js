// Layers with a switch and a slider each. All rows are here; Quasar's virtual scroll draws those in sight.
const ROW_HEIGHT = 34;
// Who drags a slider passes many values on the way.
const SETTLED_MS = 150;

export default {
  template: `
    <div class="il-layers il-editor" data-testid="editor">
      <div class="il-layers-bar">
        <q-input v-model="words" outlined dense clearable debounce="120" type="search" label="Search weight, id, type"
          class="il-layers-search" data-testid="editor-search" />
        <span class="il-muted il-small" role="status" data-testid="editor-count">{{ count }}</span>
        <span class="il-layers-tools">
          <q-btn flat dense no-caps label="Switch on" :disable="!rows.length" data-testid="editor-on" @click="turn(true)" />
          <q-btn flat dense no-caps label="Switch off" :disable="!rows.length" data-testid="editor-off" @click="turn(false)" />
        </span>
      </div>
      <q-table class="il-table il-layers-table il-editor-table" flat dense hide-bottom virtual-scroll
        :rows="rows" :columns="heads" :row-key="(row) => row.at" v-model:pagination="order" :rows-per-page-options="[0]"
        :virtual-scroll-item-size="${ROW_HEIGHT}" :virtual-scroll-sticky-size-start="30"
        :virtual-scroll-slice-size="30" table-class="il-scroll" column-sort-order="da" style="--il-width: 600px">
        <template v-slot:body="props">
          <tr :data-row="props.row.at" :class="{ 'il-editor-here': props.row.at === chosen, 'il-editor-off': !on[props.row.at] }"
            tabindex="0" @click="choose(props.row.at)" @keydown.enter.self="choose(props.row.at)" @focus="choose(props.row.at)">
            <td class="il-editor-switch">
              <q-toggle dense :model-value="on[props.row.at]" :aria-label="'Prune ' + layers[props.row.at].weight"
                :data-testid="'switch-' + props.row.at" @update:model-value="(value) => toggle([props.row.at], value)" />
            </td>
            <td class="il-editor-name" :title="layers[props.row.at].weight + '\\n' + layers[props.row.at].id"><bdi>{{ layers[props.row.at].weight }}</bdi></td>
            <td class="il-name">{{ layers[props.row.at].type }}</td>
            <td class="il-right">{{ layers[props.row.at].told }}</td>
            <td class="il-editor-slide">
              <input type="range" min="0" max="99" step="1" :value="percent(props.row.at)" :style="{ '--share': percent(props.row.at) }" :data-testid="'level-' + props.row.at"
                :disabled="fixed || !on[props.row.at]" :aria-label="'Sparsity of ' + layers[props.row.at].weight"
                @input="(event) => move(props.row.at, event.target.value)" />
            </td>
            <td class="il-right" :data-testid="'zeros-' + props.row.at">{{ on[props.row.at] ? shown(props.row.at) : "–" }}</td>
            <td class="il-right">{{ number(values.ms, props.row.at) }}</td>
            <td class="il-right" :data-testid="'loss-' + props.row.at">{{ number(values.loss, props.row.at) }}</td>
          </tr>
        </template>
      </q-table>
      <div v-if="!rows.length" class="il-layers-none">Nothing is called so.</div>
    </div>`,
  props: { content: String, state: String, told: String, fixed: Boolean },
  data: () => ({
    words: "", order: { sortBy: null, descending: false, rowsPerPage: 0 }, levels: [], on: [], chosen: 0, moved: {},
  }),
  watch: {
    state: { immediate: true, handler: "take" },
  },
  computed: {
    layers() {
      return JSON.parse(this.content);
    },
    // The time and the loss of every layer as the server predicts them.
    values() {
      return JSON.parse(this.told);
    },
    names() {
      return this.layers.map((one) => `${one.weight}\n${one.id}\n${one.type}`.toLowerCase());
    },
    rows() {
      const words = (this.words ?? "").toLowerCase().split(/\s+/).filter(Boolean);
      const found = [];
      for (let at = 0; at < this.layers.length; at++)
        if (words.every((word) => this.names[at].includes(word))) found.push({ at });
      return found;
    },
    heads() {
      const by = (field) => ({ field, sortable: true, sort: compare });
      return [
        { name: "on", label: "", align: "left", ...by((row) => Number(this.on[row.at])), headerStyle: "width: 48px" },
        { name: "Weight", label: "Weight", align: "left", ...by((row) => row.at), sortOrder: "ad" },
        { name: "Type", label: "Type", align: "left", ...by((row) => this.layers[row.at].type), sortOrder: "ad", headerStyle: "width: 66px" },
        { name: "Parameters", label: "Params", align: "right", ...by((row) => this.layers[row.at].params), headerStyle: "width: 92px" },
        { name: "slide", label: "Sparsity", align: "left", headerStyle: "width: 19%" },
        { name: "Zeros", label: "", align: "right", ...by((row) => (this.on[row.at] ? this.levels[row.at] : -1)), headerStyle: "width: 58px" },
        { name: "ms", label: "ms", align: "right", ...by((row) => this.values.ms?.[row.at] ?? -1), headerStyle: "width: 70px" },
        { name: "Loss", label: "Loss", align: "right", ...by((row) => this.loss(row.at)), headerStyle: "width: 96px" },
      ];
    },
    count() {
      const all = this.layers.length.toLocaleString("en-GB");
      const pruned = this.on.filter(Boolean).length.toLocaleString("en-GB");
      const shown = this.rows.length === this.layers.length ? all : `${this.rows.length.toLocaleString("en-GB")} of ${all}`;
      return `${shown} layers, ${pruned} switched on`;
    },
  },
  methods: {
    take() {
      const { levels, on } = JSON.parse(this.state);
      this.levels = levels;
      this.on = on;
      this.moved = {};
    },
    percent(at) {
      return Math.round(100 * this.levels[at]);
    },
    shown(at) {
      return `${Number((100 * this.levels[at]).toFixed(1))} %`;
    },
    number(values, at) {
      const value = values?.[at];
      return value === null || value === undefined ? "–" : value;
    },
    // What is no number comes last.
    loss(at) {
      const value = this.values.loss?.[at];
      return typeof value === "number" ? value : Infinity;
    },
    choose(at) {
      if (this.chosen === at) return;
      this.chosen = at;
      this.$emit("choose", at);
    },
    move(at, percent) {
      this.levels[at] = Number(percent) / 100;
      this.moved[at] = this.levels[at];
      this.settle();
    },
    toggle(places, value) {
      for (const at of places) this.on[at] = value;
      this.$emit("turn", { places, on: value });
    },
    // All that the search shows.
    turn(value) {
      this.toggle(this.rows.map((row) => row.at), value);
    },
    settle() {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => {
        const moved = this.moved;
        this.moved = {};
        this.$emit("moved", moved);
      }, SETTLED_MS);
    },
  },
};

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}
